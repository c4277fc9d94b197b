#include "consistency/staleness_bound.h"

namespace multiverso {

Status StalenessBound::Run(const Request& request, const WaitLimit& limit) {
  if (request.is_peek) return runner_->Run(request, limit);
  MV_RETURN_IF_NOT_OK(AwaitBound(request.kind, limit));
  MV_RETURN_IF_NOT_OK(runner_->Run(request, limit));
  if (!IsAdd(request.kind)) return Status::Ok();
  // Every node has applied the add, so the other workers can read it.
  clocks_.CountAdd();
  clocks_.WakeLeader();
  return Status::Ok();
}

Status StalenessBound::AwaitBound(RequestKind kind, const WaitLimit& limit) {
  const bool has_finished = clocks_.i_have_finished();
  if (IsAdd(kind) && has_finished) return AddAfterFinish();
  MV_RETURN_IF_NOT_OK(wait_.CheckRunning());
  if (IsAdd(kind)) clocks_.Attach();
  const uint64_t adds = clocks_.my_adds() + (IsAdd(kind) ? 1 : 0);
  // A worker that has finished reads the current values without waiting.
  if (adds <= staleness_ || has_finished) return Status::Ok();
  // Add number n + 1 ends round n, because rounds are counted from 0.
  const uint64_t round = adds - staleness_ - 1;
  return wait_.AwaitCalls(NameOf(kind), limit,
                          [&](int worker) { return clocks_.HasPassed(worker, round); });
}

void StalenessBound::ReachSyncPoint(const SyncPoint& point) {
  sync_point_ = point.number;
  clocks_.ArriveAt(point.number);
  // A worker that waits in a collective call of an elastic session holds up nobody's adds.
  clocks_.Detach();
  clocks_.WakeLeader();
}

Status StalenessBound::Settle(const WaitLimit& limit) {
  if (!clocks_.SpansNodes()) return Status::Ok();
  return wait_.Await(
      "save", limit, [&] { return clocks_.AllAt(sync_point_); },
      [](int /*worker*/) { return Need::kWork; });
}

}  // namespace multiverso
