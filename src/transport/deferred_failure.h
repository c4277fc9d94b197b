// DeferredFailure: holds back a failure of the messenger for a moment.
//
// When a rank dies, MPI may report an error that does not name the dead rank. PeerConnections or
// ControlChannel learns the name a little later, so a waiting rank holds the error back until then.
#ifndef MULTIVERSO_TRANSPORT_DEFERRED_FAILURE_H_
#define MULTIVERSO_TRANSPORT_DEFERRED_FAILURE_H_

#include <chrono>

#include "base/clock.h"
#include "base/status.h"
#include "transport/messenger.h"

namespace multiverso {

class DeferredFailure {
 public:
  // Returns whether a failure is held back. The messenger must not be used after a failure.
  bool is_set() const { return !failure_.ok(); }

  // Returns `status`, or pending if the status may mean a loss and is held back from now on.
  Status Filter(const Status& status) {
    if (!MayMeanLoss(status)) return status;
    failure_ = status;
    until_ = Clock::now() + std::chrono::seconds(1);
    return Status::Pending();
  }

  // Returns pending for a second, then the failure: by then the dead rank should be known.
  Status Get() const { return Clock::now() < until_ ? Status::Pending() : failure_; }

 private:
  Status failure_;
  Instant until_{};
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_DEFERRED_FAILURE_H_
