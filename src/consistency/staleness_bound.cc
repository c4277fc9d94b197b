#include "consistency/staleness_bound.h"

namespace multiverso {
namespace {

// The value of Progress::phase once the bound permits the call.
constexpr int32_t kPermitted = 1;

}  // namespace

Status StalenessBound::Run(const Request& request, Progress* progress, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(AwaitBound(request.kind, progress, limit));
  MV_RETURN_IF_NOT_OK(runner_->Run(request, progress, limit));
  if (!IsAdd(request.kind)) return Status::Ok();
  // Every node has applied the add, so the other workers can read it.
  clocks_.CountAdd();
  clocks_.WakeLeader();
  return Status::Ok();
}

Status StalenessBound::AwaitBound(RequestKind kind, Progress* progress, const WaitLimit& limit) {
  if (progress->phase == kPermitted) return Status::Ok();
  const bool has_finished = clocks_.i_have_finished();
  if (IsAdd(kind) && has_finished) {
    return AddAfterFinish();
  }
  MV_RETURN_IF_NOT_OK(clocks_.CheckRunning());
  if (IsAdd(kind)) clocks_.Attach();
  const uint64_t adds = clocks_.my_adds() + (IsAdd(kind) ? 1 : 0);
  // A worker that has finished reads the current values without waiting.
  if (adds > staleness_ && !has_finished) {
    // Add number n + 1 ends round n, because rounds are counted from 0.
    const uint64_t round = adds - staleness_ - 1;
    MV_RETURN_IF_NOT_OK(clocks_.Await(
        NameOf(kind), limit, [&] { return clocks_.OthersHavePassed(round); },
        [&](int worker) {
          return clocks_.HasPassed(worker, round) ? Need::kNothing : Need::kCall;
        }));
  }
  progress->phase = kPermitted;
  return Status::Ok();
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
  return clocks_.Await(
      "save", limit, [&] { return clocks_.AllAt(sync_point_); },
      [](int /*worker*/) { return Need::kWork; });
}

}  // namespace multiverso
