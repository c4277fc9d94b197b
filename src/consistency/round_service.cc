#include "consistency/round_service.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace multiverso {
namespace {

constexpr auto kCleanUpInterval = std::chrono::milliseconds(200);
constexpr auto kPollInterval = std::chrono::milliseconds(1);

}  // namespace

RoundService::RoundService(RankContext* context)
    : context_(context), is_leader_(context->members().is_leader()), clocks_(context) {}

RoundService::~RoundService() = default;

void RoundService::Keep(int64_t table, std::shared_ptr<NodeRounds> rounds) {
  if (rounds == nullptr) return;
  const std::lock_guard<std::mutex> guard(mutex_);
  tables_[table] = std::move(rounds);
}

void RoundService::Forget(int64_t table) {
  const std::lock_guard<std::mutex> guard(mutex_);
  tables_.erase(table);
  clocks_.Forget(table);
}

bool RoundService::Poll() {
  if (!is_leader_) return false;
  const std::unique_lock<std::mutex> guard(mutex_, std::try_to_lock);
  if (!guard.owns_lock()) return false;
  if (failure_.is_set()) AbortOnFailure(failure_.Get());
  if (context_->state()->IsAborted() || failure_.is_set()) {
    // Failures are ignored, because the session ends in any case.
    for (const auto& [id, rounds] : tables_) (void)rounds->PollTotals();
    return false;
  }
  bool any = false;
  const Status status = PollAll(&any);
  AbortOnFailure(failure_.Defer(status));
  RemoveReleasedTables();
  return any;
}

void RoundService::AbortOnFailure(const Status& status) {
  if (status.ok() || status.pending() || context_->state()->IsAborted()) return;
  // The calls that wait for a lost rank report it by name.
  if (MayMeanLoss(status) && context_->peers()->AnyLost()) return;
  context_->state()->AbortInBackground(status);
}

Status RoundService::PollAll(bool* any) {
  MV_RETURN_IF_NOT_OK(clocks_.Receive(tables_, any));
  bool awaits = false;
  for (const auto& [id, rounds] : tables_) {
    MV_RETURN_IF_NOT_OK(rounds->Poll(any));
    awaits = awaits || rounds->Awaits();
  }
  MV_RETURN_IF_NOT_OK(clocks_.Send(tables_));
  awaits_.store(awaits || clocks_.HasChanges(), std::memory_order_relaxed);
  return Status::Ok();
}

void RoundService::RemoveReleasedTables() {
  const Instant now = Clock::now();
  if (now < cleaned_up_at_ + kCleanUpInterval) return;
  cleaned_up_at_ = now;
  for (auto kept = tables_.begin(); kept != tables_.end();) {
    const bool is_released = kept->second->IsReleased();
    if (is_released) kept->second->Close();
    if (is_released && kept->second->IsClosed()) {
      clocks_.Forget(kept->first);
      kept = tables_.erase(kept);
    } else {
      ++kept;
    }
  }
}

bool RoundService::IsSettled() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return clocks_.IsClosed() && std::all_of(tables_.begin(), tables_.end(), [](const auto& table) {
           return table.second->IsClosed();
         });
}

Status RoundService::Settle(const WaitLimit& limit) {
  // A session that continues without lost ranks has no rounds, and other leaders may be lost.
  if (!is_leader_ || context_->members().survives_losses()) return Status::Ok();
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    clocks_.Close();
    for (const auto& [id, rounds] : tables_) rounds->Close();
  }
  for (;;) {
    (void)Poll();
    const Instant now = Clock::now();
    // The deadline is no error, because the session ends and no rank needs the missing messages.
    if (context_->state()->IsAborted() || IsSettled() || now >= limit.deadline) return Status::Ok();
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace multiverso
