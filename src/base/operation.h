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

// Steps `operation` to its end in this thread.
inline Status RunToEnd(Operation* operation) {
  Status status;
  do {
    status = operation->Step(WaitLimit::Until(operation->deadline()));
  } while (status.pending());
  return status;
}

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_OPERATION_H_
