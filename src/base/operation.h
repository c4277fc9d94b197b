// Operation: a call that may have to wait, cut into steps so that the caller keeps control between
// them (Ctrl-C, event loops) although nothing below the C API knows about signals.
#ifndef MULTIVERSO_BASE_OPERATION_H_
#define MULTIVERSO_BASE_OPERATION_H_

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace multiverso {

class Operation {
 public:
  explicit Operation(Instant deadline) : deadline_(deadline) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Goes on until done (ok), failed, or `limit.slice_end` (pending). Not called again after
  // anything but pending.
  virtual Status Step(const WaitLimit& limit) = 0;

  // The caller gives up instead of stepping again.
  virtual void Cancel(const std::string& reason) { (void)reason; }

  Instant deadline() const { return deadline_; }

 private:
  Instant deadline_;
};

// Steps `operation` to its end in this thread, or until it is interrupted.
inline Status RunToEnd(Operation* operation, Interrupt* interrupt = nullptr) {
  for (;;) {
    const Instant slice_end =
        interrupt == nullptr ? Instant::max() : Clock::now() + Interrupt::kEvery;
    const Status status = operation->Step(WaitLimit{operation->deadline(), slice_end});
    if (!status.pending()) return status;
    if (interrupt == nullptr || interrupt->Check(Clock::now()).ok()) continue;
    operation->Cancel(interrupt->status().text());
    return interrupt->status();
  }
}

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_OPERATION_H_
