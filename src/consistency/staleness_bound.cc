#include "consistency/staleness_bound.h"

namespace multiverso {
namespace {

// Of Progress::phase.
constexpr int32_t kAtTheShard = 1;

}  // namespace

Status StalenessBound::WaitFor(uint64_t adds, const char* call, Progress* progress,
                               const WaitLimit& limit) {
  if (progress->phase == kAtTheShard) return Status::Ok();
  MV_RETURN_IF_NOT_OK(clocks_.CheckAborted());
  // A worker that has finished reads what is there.
  if (adds > staleness_ && !clocks_.i_have_finished()) {
    // Round n ends with add n + 1.
    const uint64_t round = adds - staleness_ - 1;
    MV_RETURN_IF_NOT_OK(clocks_.Await(
        call, limit, [&] { return clocks_.OthersHavePassed(round); },
        [&](int worker) {
          return clocks_.HasPassed(worker, round) ? Need::kNothing : Need::kCall;
        }));
  }
  progress->phase = kAtTheShard;
  return Status::Ok();
}

Status StalenessBound::CheckCanAdd() const {
  if (!clocks_.i_have_finished()) return Status::Ok();
  return Status(Code::kState, "this worker has called finish() and takes part in no more rounds");
}

Status StalenessBound::Enter(bool add, const char* call, Progress* progress,
                             const WaitLimit& limit) {
  if (add) MV_RETURN_IF_NOT_OK(CheckCanAdd());
  return WaitFor(clocks_.my_adds() + (add ? 1 : 0), call, progress, limit);
}

void StalenessBound::CountAdd() {
  clocks_.CountAdd();
  clocks_.CallLeader();
}

Status StalenessBound::Get(void* out, Progress* progress, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(WaitFor(clocks_.my_adds(), "get", progress, limit));
  return shard_->Get(out, progress, limit);
}

Status StalenessBound::GetRows(const int64_t* rows, int64_t count, void* out, Progress* progress,
                               const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(WaitFor(clocks_.my_adds(), "get", progress, limit));
  return shard_->GetRows(rows, count, out, progress, limit);
}

Status StalenessBound::Add(const void* delta, Progress* progress, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(CheckCanAdd());
  MV_RETURN_IF_NOT_OK(WaitFor(clocks_.my_adds() + 1, "add", progress, limit));
  MV_RETURN_IF_NOT_OK(shard_->Add(delta, progress, limit));
  CountAdd();
  return Status::Ok();
}

Status StalenessBound::AddRows(const int64_t* rows, int64_t count, const void* delta,
                               Progress* progress, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(CheckCanAdd());
  MV_RETURN_IF_NOT_OK(WaitFor(clocks_.my_adds() + 1, "add", progress, limit));
  MV_RETURN_IF_NOT_OK(shard_->AddRows(rows, count, delta, progress, limit));
  CountAdd();
  return Status::Ok();
}

Status StalenessBound::AddGet(const void* delta, void* out, Progress* progress,
                              const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(CheckCanAdd());
  MV_RETURN_IF_NOT_OK(WaitFor(clocks_.my_adds() + 1, "add_get", progress, limit));
  MV_RETURN_IF_NOT_OK(shard_->AddGet(delta, out, progress, limit));
  CountAdd();
  return Status::Ok();
}

Status StalenessBound::Exchange(const TensorList& tensors, void* last, Progress* progress,
                                const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(CheckCanAdd());
  MV_RETURN_IF_NOT_OK(WaitFor(clocks_.my_adds() + 1, "sync", progress, limit));
  MV_RETURN_IF_NOT_OK(shard_->Exchange(tensors, last, progress, limit));
  CountAdd();
  return Status::Ok();
}

}  // namespace multiverso
