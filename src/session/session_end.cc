// How a rank ends its part in a session: with all others, alone, or after an error.
#include <algorithm>
#include <string>
#include <vector>

#include "base/failpoint.h"
#include "group/collective_call.h"
#include "session/session.h"

namespace multiverso {

Result<int32_t> Session::AgreeToLeave(int when, int64_t* step, Interrupt* interrupt) {
  if (options_.on_term != MV_TERM_LEAVES || members_.is_elastic()) {
    return Status(
        Code::kState,
        "check_leaving: expected a session with MV_TERM_LEAVES whose ranks leave together; in "
        "others, MV_SessionLeaving says whether this rank leaves");
  }
  struct Question {
    int64_t step;
    int64_t was_told;
  };
  Group* const world = context_->world();
  const Question mine{*step, context_->state()->IsLeaving() ? 1 : 0};
  const bool is_closing = when == MV_AT_CLOSE;
  const CollectiveKind kind = is_closing              ? CollectiveKind::kClosing
                              : when == MV_AT_FAILURE ? CollectiveKind::kFailing
                                                      : CollectiveKind::kLeaving;
  world->BeginAllgather(kind, &mine, sizeof(mine));
  MV_RETURN_IF_NOT_OK(world->Wait(LimitOf(NextDeadline(), interrupt)));
  bool any_told = false;
  // Ranks that close have done all their steps, so their numbers count only if all ranks close.
  int64_t smallest[2] = {INT64_MAX, INT64_MAX};  // of ranks that train, and of ranks that close
  bool all_close = true;
  bool any_failed = false;
  bool any_other_call = false;
  for (const int rank : world->participants()) {
    const ExchangeSlot& payload = world->payload(rank);
    any_failed = any_failed || payload.kind() == CollectiveKind::kFailing;
    if (!AsksAboutLeaving(payload.kind())) {
      any_other_call = true;
      continue;
    }
    const bool closes = payload.kind() == CollectiveKind::kClosing;
    all_close = all_close && closes;
    const auto other = payload.Read<Question>();
    any_told = any_told || other.was_told != 0;
    if (other.step >= 0) smallest[closes] = std::min(smallest[closes], other.step);
  }
  // The other call fails if a program has failed, so that a rank that closes can ask again.
  if (any_other_call) return is_closing && any_failed ? MV_LEAVE_NOT_NOW : MV_LEAVE_OTHER_CALL;
  const int64_t found = smallest[all_close];
  *step = found == INT64_MAX ? -1 : found;
  if (!any_told) return all_close ? MV_LEAVE_OTHER_CALL : MV_LEAVE_NOT_NOW;
  // The message that says so may still be on its way from another node.
  context_->memory()->control()->leaving.store(1);
  return MV_LEAVE_NOW;
}

bool Session::IsLastToLeave() {
  const NodeMemory& memory = *context_->memory();
  JoinedRanks& joined = memory.control()->joined;
  const int size = joined.count();
  const std::vector<int> ended = context_->peers()->EndedRanks();
  for (int rank = 0; rank < size; ++rank) {
    const bool has_ended = std::binary_search(ended.begin(), ended.end(), rank);
    if (!has_ended && memory.slot(rank).leaves.load() == 0) return false;
  }
  // Each rank says that it leaves before it looks, so at least the last to say so sees that none
  // stays. One of those that see it ends the session, unless another rank has joined it.
  if (!joined.End(size)) return false;
  // The call in which it saves is the next of the session, of which it may have made fewer calls.
  CollectiveCall::SkipEarlier(context_.get());
  return true;
}

Status Session::Close(Interrupt* interrupt) {
  if (members_.is_elastic()) {
    const bool was_running = !context_->state()->IsAborted() || context_->state()->IsAbortKnown();
    Finish();
    context_->state()->Close();
    return was_running ? Status::Ok() : context_->state()->CheckRunning(/*was_waiting=*/false);
  }
  const bool was_aborted = context_->state()->IsAbortKnown();
  const WaitLimit limit = LimitOf(IsSaving() ? NextDiskDeadline() : NextDeadline(), interrupt);
  bool save_failed = false;
  const Status status = SettleBeforeClose(&save_failed, limit);
  if (status.ok() || save_failed) {
    context_->state()->Close();
  } else {
    context_->state()->Leave("shut down after an error");
  }
  // In a session that was known to be aborted, Close need not wait for other ranks, so it succeeds.
  return was_aborted && !save_failed ? Status::Ok() : status;
}

Status Session::SettleBeforeClose(bool* save_failed, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(AwaitAll(CollectiveKind::kClose, limit));
  (void)MV_FAILPOINT("close.met");
  // Other nodes may need sums that this node forwards, so the node forwards all sums first.
  RoundService* const rounds = table_context().rounds;
  if (rounds != nullptr) MV_RETURN_IF_NOT_OK(rounds->Settle(limit));
  const Status saved = EndSave(&checkpointing_, limit);
  // If EndSave has removed the job, all ranks know of the failure, and the session closes anyway.
  *save_failed = !saved.ok() && checkpointing_.job == nullptr;
  // No rank waits for another one any more, so the disk may take its time, and may fail.
  const Status ended = EndUseOfFiles(/*after_error=*/false, limit);
  return saved.ok() ? ended : saved;
}

Status Session::EndUseOfFiles(bool after_error, const WaitLimit& limit) {
  if (on_disk_.empty() || checkpointing_.is_half_loaded) return Status::Ok();
  const std::vector<int> here = context_->world()->participants_here();
  if (here.empty() || here.front() != members_.rank()) return Status::Ok();
  for (int local_rank = 0; local_rank < members_.num_ranks_here(); ++local_rank) {
    const int rank = members_.rank_of(local_rank);
    if (std::binary_search(here.begin(), here.end(), rank)) continue;
    // A rank that was suspended counts as lost, but may go on.
    const bool has_left = context_->memory()->slot(rank).state.load() != RankSlot::kAlive;
    if (!has_left && context_->peers()->IsAlive(local_rank)) return Status::Ok();
  }
  Status status;
  for (const auto& shard : on_disk_) {
    // The program may not have loaded a checkpoint into a new table yet.
    if (after_error && !shard->is_reopened()) continue;
    const Status ended = shard->EndUseOfFile(members_, options_.mode, limit);
    if (status.ok()) status = ended;
  }
  return status;
}

void Session::Leave(const std::string& reason) {
  // Other ranks may still be changing rows.
  if (members_.size() == 1) {
    (void)EndUseOfFiles(/*after_error=*/true, WaitLimit::Until(NextDeadline(), nullptr));
  }
  context_->state()->Leave(reason);
}

}  // namespace multiverso
