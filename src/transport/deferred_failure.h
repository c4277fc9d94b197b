// DeferredFailure: holds back a failure of the messenger for a moment.
//
// When a rank dies, MPI may report an error without its name before the name is known
// (PeerConnections, ControlChannel). The waiting rank looks for the name meanwhile.
#ifndef MULTIVERSO_TRANSPORT_DEFERRED_FAILURE_H_
#define MULTIVERSO_TRANSPORT_DEFERRED_FAILURE_H_

#include <chrono>

#include "base/clock.h"
#include "base/status.h"
#include "transport/messenger.h"

namespace multiverso {

class DeferredFailure {
 public:
  // If so, the messenger is not to be used further.
  bool is_set() const { return !failure_.ok(); }

  // That status, or pending if it is held back from now on.
  Status Filter(const Status& status) {
    if (!MayMeanLoss(status)) return status;
    failure_ = status;
    until_ = Clock::now() + std::chrono::seconds(1);
    return Status::Pending();
  }

  // The failure once the name should be known, pending before.
  Status Get() const { return Clock::now() < until_ ? Status::Pending() : failure_; }

 private:
  Status failure_;
  Instant until_{};
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_DEFERRED_FAILURE_H_
