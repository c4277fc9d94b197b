#include "c_api/waiting.h"

#include <atomic>

#include "memory/futex.h"

namespace multiverso::c_api {
namespace {

struct Check {
  MV_InterruptCheck function = nullptr;
  void* argument = nullptr;
};

struct ThreadState {
  Check check;
  bool is_asking = false;  // while a function runs
};

ThreadState& StateOfThisThread() {
  thread_local ThreadState state;
  return state;
}

// The function of the threads that have set none. One thread at a time uses it.
Check default_check;
std::atomic<bool> is_default_in_use{false};

std::optional<std::string> Ask(Check check) {
  if (check.function == nullptr) return std::nullopt;
  ThreadState& state = StateOfThisThread();
  state.is_asking = true;
  const char* const reason = check.function(check.argument);
  state.is_asking = false;
  if (reason == nullptr) return std::nullopt;
  return reason;
}

}  // namespace

std::optional<std::string> AskThisThread() {
  const ThreadState& state = StateOfThisThread();
  if (state.check.function != nullptr) return Ask(state.check);
  // If another thread is asking, this one asks at its next check.
  if (is_default_in_use.exchange(true)) return std::nullopt;
  std::optional<std::string> reason = Ask(default_check);
  is_default_in_use.store(false);
  return reason;
}

void SetInterrupt(MV_InterruptCheck check, void* argument) {
  StateOfThisThread().check = Check{check, argument};
}

Status SetDefaultInterrupt(MV_InterruptCheck check, void* argument) {
  MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
  while (is_default_in_use.exchange(true)) YieldCore();
  default_check = Check{check, argument};
  is_default_in_use.store(false);
  return Status::Ok();
}

void ForgetAskingThread() { is_default_in_use.store(false); }

Status CheckNotInInterrupt() {
  if (!StateOfThisThread().is_asking) return Status::Ok();
  return Status(Code::kState,
                "this thread waits in a call, which runs the function that decides whether to "
                "abort it (MV_SetInterrupt): return from the function first");
}

}  // namespace multiverso::c_api
