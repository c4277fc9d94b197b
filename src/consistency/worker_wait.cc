#include "consistency/worker_wait.h"

#include <algorithm>

#include "base/text.h"
#include "consistency/call_comparison.h"
#include "transport/transport.h"

namespace multiverso {

struct WorkerWait::Awaited {
  std::vector<int> late;               // the ranks whose calls are needed
  std::vector<int> working;            // the ranks whose work is needed, reported if none is late
  uint64_t round = 0;                  // of the slowest of them, which is not always this worker's
  std::vector<int> losses;             // the lost ranks that the wait needs
  bool is_loss_certain = false;        // whether no message of one of them can still arrive
  std::vector<int> other_losses;       // the lost workers that have done their part of the wait
  WorkersCall elsewhere{-1, nullptr};  // a late worker that waits in another call

  void AddLoss(int rank, bool is_certain) {
    losses.push_back(rank);
    is_loss_certain = is_loss_certain || is_certain;
  }
};

Status WorkerWait::AwaitTicks(const char* call, const WaitLimit& limit) {
  if (clocks_->i_have_finished()) return AddAfterFinish();
  MV_RETURN_IF_NOT_OK(CheckRunning());
  const uint64_t ticks_after_call = clocks_->my_ticks() + 2;
  return AwaitCalls(call, limit, [&](int worker) {
    // A worker may be ahead by kTicksKept - 1, because another may still compare its own last tick.
    return clocks_->has_finished(worker) ||
           clocks_->ticks(worker) + WorkerClocks::kTicksKept - 1 >= ticks_after_call;
  });
}

bool WorkerWait::EarlierMessagesMayArrive() {
  constexpr auto kDelay = std::chrono::milliseconds(100);  // much longer than a message takes
  if (!clocks_->SpansNodes()) return false;
  const Instant now = Clock::now();
  if (!abort_noticed_.has_value()) abort_noticed_ = now;
  return now < *abort_noticed_ + kDelay;
}

Status WorkerWait::Look(const char* call, const std::function<Need(int)>& need_of,
                        Awaited* awaited) {
  const PeerStatus& peers = *context_->peers();
  const bool is_elastic = context_->members().is_elastic();
  awaited->round = clocks_->my_adds();
  for (int worker = 0; worker < clocks_->workers(); ++worker) {
    if (worker == clocks_->me()) continue;
    const int rank = clocks_->rank_of(worker);
    // The awaited call is read before need_of, because the worker made its adds before it entered
    // the awaited call.
    const char* const awaited_call = peers.CollectiveAwaitedBy(rank);
    const bool is_lost = peers.IsLost(rank);
    const Need need = need_of(worker);
    if (need == Need::kNothing) {
      if (is_lost && !clocks_->has_finished(worker) && !is_elastic) {
        awaited->other_losses.push_back(rank);
      }
      continue;
    }
    (need == Need::kCall ? awaited->late : awaited->working).push_back(rank);
    awaited->round = std::min(awaited->round, clocks_->adds(worker));
    if (is_elastic && is_lost) {
      peers.ExcludeIfLost(rank);
      clocks_->FinishFor(worker);
    } else if (is_lost) {
      // All lost workers are named, because one of them may have ended only after it was told of
      // the loss of another.
      awaited->AddLoss(rank, clocks_->is_here(worker) || watch_.MessagesHaveArrived());
    } else if (peers.EndsSession(rank)) {
      return context_->state()->AbortForSilentRank(
          rank, StrCat(call, ", ", clocks_->RoundName(awaited->round)));
    } else if (need == Need::kCall && awaited_call != nullptr) {
      awaited->elsewhere = {worker, awaited_call};
    }
  }
  for (const int rank : also_needed_) {
    awaited->working.push_back(rank);
    if (peers.IsLost(rank)) awaited->AddLoss(rank, watch_.MessagesHaveArrived());
  }
  return Status::Ok();
}

Status WorkerWait::Check(const char* call, const WaitLimit& limit,
                         const std::function<Need(int)>& need_of) {
  if (context_->state()->IsAborted() && !aborted_before_ && EarlierMessagesMayArrive()) {
    return limit.Check(Clock::now());
  }
  MV_RETURN_IF_NOT_OK(context_->state()->CheckRunning(!aborted_before_));
  Awaited awaited;
  MV_RETURN_IF_NOT_OK(Look(call, need_of, &awaited));
  std::vector<int> all = awaited.late;
  all.insert(all.end(), awaited.working.begin(), awaited.working.end());
  const int silenced_by = watch_.LossThatSilences(all);
  if (silenced_by >= 0) awaited.AddLoss(silenced_by, /*is_certain=*/true);
  const std::string here = StrCat(call, ", ", clocks_->RoundName(awaited.round));
  if (awaited.is_loss_certain) return watch_.Lost(awaited.losses, watch_.WhileWaiting(here));
  // A late worker may have ended because it was told of the loss of a worker that was not late.
  const std::vector<int>& late = awaited.late.empty() ? awaited.working : awaited.late;
  if (!awaited.other_losses.empty() && watch_.MessagesHaveArrived()) {
    return watch_.Lost(awaited.other_losses,
                       StrCat(" while rank ", context_->members().rank(), " waited in ", here,
                              ", for ", NameRanks(late)));
  }
  if (awaited.elsewhere.call != nullptr) {
    return AbortWithMismatch(*clocks_, awaited.elsewhere, {clocks_->me(), call});
  }
  const Instant now = Clock::now();
  const bool is_over = now >= limit.deadline;
  if (is_over || watch_.IsLineDue(now)) {
    const PeerWatch::Late whom{StrCat(" in ", here, ","),
                               StrCat(NameRanks(late), ", which did not join it"),
                               late.empty() ? -1 : late[0]};
    if (is_over) return watch_.AbortTimedOut(whom);
    watch_.LogLate(whom, limit.deadline);
  }
  return limit.Check(now);
}

}  // namespace multiverso
