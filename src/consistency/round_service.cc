#include "consistency/round_service.h"

#include <thread>
#include <utility>

#include "base/copy_bytes.h"

namespace multiverso {
namespace {

constexpr auto kCleanUpInterval = std::chrono::milliseconds(200);
constexpr auto kPollInterval = std::chrono::milliseconds(1);

}  // namespace

RoundService::RoundService(RankContext* context, std::function<bool()> poll_others)
    : context_(context),
      poll_others_(std::move(poll_others)),
      is_leader_(context->members().is_leader()),
      link_(context->control_channel()->messenger(), kSumTag),
      clock_exchange_(context) {}

void RoundService::Serve(int64_t table, std::shared_ptr<NodeRounds> rounds) {
  if (rounds == nullptr) return;
  const std::lock_guard<std::mutex> guard(mutex_);
  rounds->Begin(table, &link_);
  rounds_by_table_[table] = std::move(rounds);
}

void RoundService::Forget(int64_t table) {
  const std::lock_guard<std::mutex> guard(mutex_);
  rounds_by_table_.erase(table);
  clock_exchange_.Forget(table);
}

void RoundService::StageLent(StagedAdd* add, char* to, int64_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  CopyBytes(to, add->lent, static_cast<size_t>(bytes));
  for (const auto& [id, rounds] : rounds_by_table_) rounds->ReadFrom(to, add->lent);
  add->lent = nullptr;
}

bool RoundService::Poll() {
  if (!is_leader_) return false;
  const std::unique_lock<std::mutex> guard(mutex_, std::try_to_lock);
  if (!guard.owns_lock()) return false;
  if (failure_.is_set()) AbortOnFailure(failure_.Get());
  if (context_->state()->IsAborted() || failure_.is_set()) {
    // Rounds to which all workers have added are still applied, as far as the sums arrive.
    bool is_ignored = false;
    (void)PollSums(&is_ignored, &is_ignored);
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
  MV_RETURN_IF_NOT_OK(PollSums(did_work, &is_awaiting));
  MV_RETURN_IF_NOT_OK(clock_exchange_.Send(rounds_by_table_));
  is_awaiting_.store(is_awaiting || clock_exchange_.HasChanges(), std::memory_order_relaxed);
  return Status::Ok();
}

Status RoundService::PollSums(bool* did_work, bool* is_awaiting) {
  if (rounds_by_table_.empty() && link_.AllSent()) return Status::Ok();
  MV_RETURN_IF_NOT_OK(link_.Advance());
  for (;;) {
    PieceLink::Piece piece;
    MV_RETURN_IF_NOT_OK(link_.Take(&piece));
    if (piece == nullptr) break;
    *did_work = true;
    const bool has_header = piece->bytes.size() >= sizeof(PieceHeader);
    const int sender = has_header ? piece->header()->sender : -1;
    const auto found = rounds_by_table_.find(has_header ? piece->header()->table : -1);
    if (found == rounds_by_table_.end() || sender < 0 || sender >= context_->members().size()) {
      context_->control_channel()->ReportInvalid("sum", -1);
      continue;
    }
    // A rank that was suspended does not know yet that the others count it as lost.
    if (context_->peers()->IsExcludedForSilence(sender)) continue;
    MV_RETURN_IF_NOT_OK(found->second->Receive(std::move(piece)));
  }
  for (const auto& [id, rounds] : rounds_by_table_) {
    MV_RETURN_IF_NOT_OK(rounds->Poll(did_work));
    *is_awaiting = *is_awaiting || rounds->IsAwaitingMessage();
  }
  return Status::Ok();
}

void RoundService::RemoveReleasedTables() {
  const Instant now = Clock::now();
  if (now < cleaned_up_at_ + kCleanUpInterval) return;
  cleaned_up_at_ = now;
  for (auto entry = rounds_by_table_.begin(); entry != rounds_by_table_.end();) {
    if (entry->second->IsReleased() && entry->second->IsSettled()) {
      clock_exchange_.Forget(entry->first);
      entry = rounds_by_table_.erase(entry);
    } else {
      ++entry;
    }
  }
}

bool RoundService::IsSettled() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return clock_exchange_.IsClosed() && link_.AllSent() &&
         std::all_of(rounds_by_table_.begin(), rounds_by_table_.end(),
                     [](const auto& table) { return table.second->IsSettled(); });
}

bool RoundService::HasLostLeader() const {
  const Membership& members = context_->members();
  for (int node = 0; node < members.num_nodes(); ++node) {
    if (node != members.node() && context_->peers()->IsLost(members.leader_of(node))) return true;
  }
  return false;
}

Status RoundService::Settle(const WaitLimit& limit) {
  if (!is_leader_) return Status::Ok();
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    clock_exchange_.Close();
  }
  for (;;) {
    (void)Poll();
    const Instant now = Clock::now();
    // Neither a loss nor the deadline is an error: all calls have been made, so no rank needs what
    // is missing.
    if (context_->state()->IsAborted() || IsSettled() || HasLostLeader() || now >= limit.deadline) {
      return Status::Ok();
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace multiverso
