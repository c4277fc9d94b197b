// DeferredFailure: a failure of the messenger that is held back for a moment.
//
// When a rank dies MPI may tell by an error, which has no name in it, before those who know the
// name have told it (PeerConnections, ControlChannel). Whoever waits looks for the name meanwhile.
#ifndef MULTIVERSO_TRANSPORT_DEFERRED_FAILURE_H_
#define MULTIVERSO_TRANSPORT_DEFERRED_FAILURE_H_

#include <chrono>

#include "base/clock.h"
#include "base/status.h"
#include "transport/messenger.h"

namespace multiverso {

class DeferredFailure {
 public:
  // When there is one nothing further is to be tried.
  bool is_set() const { return !failure_.ok(); }

  // That status, or pending if it is from now on held back.
  Status Filter(const Status& status) {
    if (!MayMeanLoss(status)) return status;
    failure_ = status;
    until_ = Clock::now() + std::chrono::seconds(1);
    return Status::Pending();
  }

  // The failure, when the name should have come; pending before that.
  Status Get() const { return Clock::now() < until_ ? Status::Pending() : failure_; }

 private:
  Status failure_;
  Instant until_{};
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_DEFERRED_FAILURE_H_
