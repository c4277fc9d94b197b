#include "c_api/pending.h"

#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "base/without_signals.h"

namespace multiverso::c_api {
namespace {

// A call that a helper thread makes on behalf of the thread that owns this object.
class PendingCall {
 public:
  PendingCall(std::chrono::milliseconds slice, CallBody body) : slice_(slice) {
    std::packaged_task<Status()> task([this, body = std::move(body)] {
      Interrupt interrupt([this] {
        const std::lock_guard<std::mutex> guard(mutex_);
        return cancel_reason_;
      });
      return body(&interrupt);
    });
    result_ = task.get_future();
    const WithoutSignals without_signals;
    helper_ = std::thread(std::move(task));
  }
  // Cancels a call that has not ended when its thread ends, and waits for the helper thread.
  ~PendingCall() { Cancel("the thread that made the call has ended"); }
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

  std::chrono::milliseconds slice() const { return slice_; }

  bool IsDoneWithin(std::chrono::milliseconds time) const {
    return result_.wait_for(time) == std::future_status::ready;
  }
  // Returns the result of a finished call, or throws the exception that the call threw.
  Status TakeResult() { return result_.get(); }

  // Cancels the call and waits until the call has ended.
  void Cancel(const std::string& reason) {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (!cancel_reason_.has_value()) cancel_reason_ = reason;
    }
    if (helper_.joinable()) helper_.join();
  }

 private:
  const std::chrono::milliseconds slice_;
  std::mutex mutex_;
  std::optional<std::string> cancel_reason_;  // set if the call is cancelled
  std::future<Status> result_;
  std::thread helper_;
};

struct ThreadState {
  MV_InterruptCheck check = nullptr;
  void* argument = nullptr;
  bool is_asking = false;  // true while `check` runs
  std::unique_ptr<PendingCall> pending;

  std::optional<std::string> Ask() {
    is_asking = true;
    const char* const reason = check(argument);
    is_asking = false;
    if (reason == nullptr) return std::nullopt;
    return reason;
  }
};

ThreadState& StateOfThisThread() {
  thread_local ThreadState state;
  return state;
}

Status CheckNotAsking(const ThreadState& state) {
  if (!state.is_asking) return Status::Ok();
  return Status(Code::kState,
                "this thread waits in a call, which runs its MV_SetInterrupt function: return from "
                "the function first");
}

}  // namespace

Status RunCall(std::chrono::milliseconds slice, CallBody body) {
  ThreadState& state = StateOfThisThread();
  if (state.check != nullptr) {
    Interrupt interrupt([&state] { return state.Ask(); });
    const Status status = body(&interrupt);
    return interrupt.status().ok() ? status : interrupt.status();
  }
  if (slice.count() == 0) return body(nullptr);
  state.pending = std::make_unique<PendingCall>(slice, std::move(body));
  return WaitForPending();
}

Status WaitForPending() {
  ThreadState& state = StateOfThisThread();
  if (state.pending == nullptr) {
    return Status(Code::kState, "MV_Wait: this thread has no pending call");
  }
  const bool can_ask = state.check != nullptr;
  while (!state.pending->IsDoneWithin(can_ask ? Interrupt::kMinInterval : state.pending->slice())) {
    if (!can_ask) return Status::Pending();
    const std::optional<std::string> reason = state.Ask();
    if (!reason.has_value()) continue;
    MV_RETURN_IF_NOT_OK(CancelPending(*reason));
    return Status(Code::kAborted, *reason);
  }
  const std::unique_ptr<PendingCall> done = std::move(state.pending);
  return done->TakeResult();
}

Status CancelPending(const std::string& reason) {
  ThreadState& state = StateOfThisThread();
  MV_RETURN_IF_NOT_OK(CheckNotAsking(state));
  if (state.pending == nullptr) return Status::Ok();
  state.pending->Cancel(reason);
  state.pending.reset();
  return Status::Ok();
}

bool ForgetPending() { return StateOfThisThread().pending.release() != nullptr; }

Status CheckNothingPending() {
  const ThreadState& state = StateOfThisThread();
  MV_RETURN_IF_NOT_OK(CheckNotAsking(state));
  if (state.pending == nullptr) return Status::Ok();
  return Status(Code::kState,
                "this thread has a pending call: finish it with MV_Wait or MV_Cancel first");
}

void SetInterrupt(MV_InterruptCheck check, void* argument) {
  ThreadState& state = StateOfThisThread();
  state.check = check;
  state.argument = argument;
}

}  // namespace multiverso::c_api
