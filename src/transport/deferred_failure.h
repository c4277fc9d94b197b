// DeferredFailure: holds back a failure of the messenger for a second. When a rank dies, MPI may
// report an error that does not name the rank. PeerConnections or ControlChannel learns a little
// later which rank has died, and the wait ends with an error that names it instead.
#pragma once

#include <chrono>

#include "base/clock.h"
#include "base/status.h"
#include "transport/messenger.h"

namespace multiverso {

class DeferredFailure {
 public:
  // Returns whether a failure is held back. The work that failed must not continue, because one of
  // its messages may be lost.
  bool is_set() const { return !failure_.ok(); }

  // Returns `status` or, if it may mean the loss of a rank, holds it back and returns pending.
  Status Defer(const Status& status) {
    if (!MayMeanLoss(status)) return status;
    failure_ = status;
    until_ = Clock::now() + std::chrono::seconds(1);
    return Status::Pending();
  }

  // Returns pending until a second after the failure, then the failure itself.
  Status Get() const { return Clock::now() < until_ ? Status::Pending() : failure_; }

 private:
  Status failure_;
  Instant until_{};
};

}  // namespace multiverso
