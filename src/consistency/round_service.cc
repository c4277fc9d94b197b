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
    : context_(context), is_leader_(context->members().is_leader()), clock_exchange_(context) {}

void RoundService::Serve(int64_t table, std::shared_ptr<NodeRounds> rounds) {
  if (rounds == nullptr) return;
  const std::lock_guard<std::mutex> guard(mutex_);
  rounds_by_table_[table] = std::move(rounds);
}

void RoundService::Forget(int64_t table) {
  const std::lock_guard<std::mutex> guard(mutex_);
  rounds_by_table_.erase(table);
  clock_exchange_.Forget(table);
}

bool RoundService::Poll() {
  if (!is_leader_) return false;
  const std::unique_lock<std::mutex> guard(mutex_, std::try_to_lock);
  if (!guard.owns_lock()) return false;
  if (failure_.is_set()) AbortOnFailure(failure_.Get());
  if (context_->state()->IsAborted() || failure_.is_set()) {
    // No sum continues. The totals of complete rounds are still applied, as far as they arrive.
    for (const auto& [id, rounds] : rounds_by_table_) (void)rounds->PollTotals();
    return false;
  }
  bool did_work = false;
  const Status status = PollAll(&did_work);
  AbortOnFailure(failure_.Defer(status));
  RemoveReleasedTables();
  return did_work;
}

void RoundService::AbortOnFailure(const Status& status) {
  if (status.ok() || status.pending() || context_->state()->IsAborted()) return;
  // A loss needs no abort: the calls that wait for the lost rank end with an error that names it.
  if (MayMeanLoss(status) && context_->peers()->AnyLost()) return;
  context_->state()->AbortInBackground(status);
}

Status RoundService::PollAll(bool* did_work) {
  MV_RETURN_IF_NOT_OK(clock_exchange_.Receive(rounds_by_table_, did_work));
  bool is_awaiting = false;
  for (const auto& [id, rounds] : rounds_by_table_) {
    MV_RETURN_IF_NOT_OK(rounds->Poll(did_work));
    is_awaiting = is_awaiting || rounds->IsAwaitingMessage();
  }
  MV_RETURN_IF_NOT_OK(clock_exchange_.Send(rounds_by_table_));
  is_awaiting_.store(is_awaiting || clock_exchange_.HasChanges(), std::memory_order_relaxed);
  return Status::Ok();
}

void RoundService::RemoveReleasedTables() {
  const Instant now = Clock::now();
  if (now < cleaned_up_at_ + kCleanUpInterval) return;
  cleaned_up_at_ = now;
  for (auto entry = rounds_by_table_.begin(); entry != rounds_by_table_.end();) {
    const bool is_released = entry->second->IsReleased();
    if (is_released) entry->second->Close();
    if (is_released && entry->second->IsClosed()) {
      clock_exchange_.Forget(entry->first);
      entry = rounds_by_table_.erase(entry);
    } else {
      ++entry;
    }
  }
}

bool RoundService::IsSettled() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return clock_exchange_.IsClosed() &&
         std::all_of(rounds_by_table_.begin(), rounds_by_table_.end(),
                     [](const auto& table) { return table.second->IsClosed(); });
}

Status RoundService::Settle(const WaitLimit& limit) {
  // With on_peer_lost="continue" there are no rounds, and a lost leader sends no last message.
  if (!is_leader_ || context_->members().survives_losses()) return Status::Ok();
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    clock_exchange_.Close();
    for (const auto& [id, rounds] : rounds_by_table_) rounds->Close();
  }
  for (;;) {
    (void)Poll();
    const Instant now = Clock::now();
    // Passing the deadline is not an error: the session ends, and no rank needs what is missing.
    if (context_->state()->IsAborted() || IsSettled() || now >= limit.deadline) return Status::Ok();
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace multiverso
