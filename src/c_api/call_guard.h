// CallGuard: keeps two threads of a rank from making calls that only one may make at a time.
//
// Collective calls must be made in the same order on every rank. Two threads that make them at the
// same time have no order, so the second gets an error. The same holds for the rounds of a table.
#ifndef MULTIVERSO_C_API_CALL_GUARD_H_
#define MULTIVERSO_C_API_CALL_GUARD_H_

#include <atomic>
#include <utility>

#include "base/status.h"
#include "base/text.h"

namespace multiverso::c_api {

// Holds a flag for its lifetime, unless another thread holds it.
class CallGuard {
 public:
  // A null flag allows every call.
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

  // StateError if another thread holds the flag. `on` is "session" or "table".
  Status Check(const char* on) const {
    if (!is_denied_) return Status::Ok();
    return Status(Code::kState, StrCat("another thread is in a call on this ", on,
                                       " that all ranks make together: only one thread at a time "
                                       "may make such calls"));
  }
  // Keeps the flag for good, so that no further call is allowed.
  void Keep() { flag_ = nullptr; }

 private:
  std::atomic<bool>* flag_;
  bool is_denied_;
};

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_CALL_GUARD_H_
