// DeferredFailure: holds back a failure of the messenger for a second. When a rank dies, MPI may
// report an error that does not name the rank. PeerConnections or ControlChannel learns a little
// later which rank has died, and the wait ends with an error that names it instead.
#pragma once

#include <algorithm>
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
    last_asked_ = Clock::now();
    waited_ = {};
    return Status::Pending();
  }

  // Returns pending until it has been asked for a second, then the failure itself.
  Status Get() {
    const Instant now = Clock::now();
    // When a process resumes after a suspension, its other threads have learned nothing meanwhile.
    waited_ += std::min<Clock::duration>(now - last_asked_, kLongestStep);
    last_asked_ = now;
    return waited_ < kWait ? Status::Pending() : failure_;
  }

 private:
  static constexpr std::chrono::milliseconds kWait{1000};
  static constexpr std::chrono::milliseconds kLongestStep{100};

  Status failure_;
  Instant last_asked_{};
  Clock::duration waited_{};
};

}  // namespace multiverso
