// CallGuard: what keeps two threads of a rank from calls that only one of them may make at a time.
//
// Collective calls must be made in the same order on every rank, and two threads that make them at
// once have no order: the second gets an error. The same holds for the rounds of a table.
#ifndef MULTIVERSO_C_API_CALL_GUARD_H_
#define MULTIVERSO_C_API_CALL_GUARD_H_

#include <atomic>
#include <string>
#include <utility>

#include "base/status.h"

namespace multiverso::c_api {

// Holds a flag from its making to its end, unless another thread does.
class CallGuard {
 public:
  // Null: the call needs no turn.
  explicit CallGuard(std::atomic<bool>* flag)
      : flag_(flag), is_denied_(flag != nullptr && flag->exchange(true)) {}
  ~CallGuard() {
    if (flag_ != nullptr && !is_denied_) flag_->store(false);
  }
  CallGuard(CallGuard&& other) noexcept
      : flag_(std::exchange(other.flag_, nullptr)), is_denied_(other.is_denied_) {}
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;
  CallGuard& operator=(CallGuard&&) = delete;

  // StateError if it is another thread's. `on` is "session" or "table".
  Status Check(const std::string& on) const {
    if (!is_denied_) return Status::Ok();
    return Status(Code::kState, "another thread is in a call on this " + on +
                                    " that all ranks make together: one thread at a time makes "
                                    "those");
  }
  // Nobody gets a turn any more.
  void Keep() { flag_ = nullptr; }

 private:
  std::atomic<bool>* flag_;
  bool is_denied_;
};

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_CALL_GUARD_H_
