// CallGuard: keeps a thread out of a call while another thread of the rank is in such a call.
//
// Every rank must make its collective calls, and its calls on a table with rounds, in the same
// order. Concurrent calls of two threads have no order, so the second thread gets an error.
#pragma once

#include <atomic>

#include "base/compiler.h"
#include "base/status.h"
#include "base/text.h"

namespace multiverso::c_api {

// A guard holds its flag while the guard lives, unless the flag was set already.
class CallGuard {
 public:
  // A null flag means that the call needs no guard.
  explicit CallGuard(std::atomic<bool>* flag)
      : flag_(flag), is_denied_(flag != nullptr && flag->exchange(true)) {}
  ~CallGuard() {
    if (flag_ != nullptr && !is_denied_) flag_->store(false);
  }
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

  // Returns StateError if another guard holds the flag. `object` names what the flag belongs to.
  Status Check(const char* object) const { return is_denied_ ? Denied(object) : Status::Ok(); }
  // Leaves the flag set forever, so that no further call is possible.
  void Keep() { flag_ = nullptr; }

 private:
  static MV_NOINLINE Status Denied(const char* object) {
    return Status(Code::kState, StrCat("another thread is in a call on this ", object,
                                       " that all ranks make together: expected one thread at a "
                                       "time"));
  }

  std::atomic<bool>* flag_;
  bool is_denied_;
};

}  // namespace multiverso::c_api
