#include "c_api/pending.h"

#include <optional>
#include <utility>

namespace multiverso::c_api {
namespace {

std::optional<Call>& ThisThreads() {
  thread_local std::optional<Call> call;
  return call;
}

}  // namespace

Status Drive(Call call) {
  Status status;
  do {
    const Instant slice_end = call.slice.count() > 0 ? Clock::now() + call.slice : Instant::max();
    status = call.operation->Step(WaitLimit{call.operation->deadline(), slice_end});
  } while (status.pending() && call.slice.count() == 0);
  if (status.pending()) {
    ThisThreads() = std::move(call);
    return status;
  }
  if (call.record != nullptr) call.record->End(status.code());
  return call.finish ? call.finish(status) : status;
}

Status DrivePending() {
  if (!ThisThreads().has_value()) {
    return Status(Code::kState, "MV_Wait: this thread has no pending call");
  }
  Call call = std::move(*ThisThreads());
  ThisThreads().reset();
  return Drive(std::move(call));
}

Status CancelPending(const std::string& reason) {
  if (!ThisThreads().has_value()) return Status::Ok();
  Call call = std::move(*ThisThreads());
  ThisThreads().reset();
  call.operation->Cancel(reason);
  if (call.record != nullptr) call.record->End(Code::kAborted);
  if (call.finish) (void)call.finish(Status(Code::kAborted, reason));
  return Status::Ok();
}

bool ForgetPending() {
  if (!ThisThreads().has_value()) return false;
  (void)new Call(std::move(*ThisThreads()));  // NOLINT: ending it would end the parent's
  ThisThreads().reset();
  return true;
}

Status CheckNothingPending() {
  if (!ThisThreads().has_value()) return Status::Ok();
  return Status(Code::kState,
                "this thread has a pending call: finish it with MV_Wait or MV_Cancel first");
}

}  // namespace multiverso::c_api
