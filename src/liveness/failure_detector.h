// FailureDetector: heartbeats, which find ranks that exist but do not run. The kernel cannot show
// these ranks, since it reports a suspended process as alive.
//
// Each rank writes the time into its slot about once a second. For other nodes, the service ranks
// record when they last received a heartbeat (ControlChannel). A rank that was suspended restarts
// its timers when it resumes, since it cannot know which others were suspended too.
#ifndef MULTIVERSO_LIVENESS_FAILURE_DETECTOR_H_
#define MULTIVERSO_LIVENESS_FAILURE_DETECTOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "node/control_segment.h"
#include "node/membership.h"

namespace multiverso {

// Thread-safe.
class FailureDetector {
 public:
  FailureDetector(NodeControl* control, const Membership* members);

  // Returns how long a rank may be silent before a warning is logged.
  std::chrono::nanoseconds warns_after() const { return limit_ / 3; }
  // Returns when this rank started to run, in nanoseconds: its first heartbeat, or the first after
  // it was suspended. Returns 0 before the first heartbeat.
  int64_t running_since() const { return running_since_.load(std::memory_order_relaxed); }
  // Returns the time between two heartbeats of a rank.
  std::chrono::nanoseconds interval() const { return interval_; }
  // Records a heartbeat of this rank.
  void Beat();
  // Records a heartbeat of another node. After the last one, the silence of the node means nothing.
  void RecordHeartbeat(int node, bool is_last);

  // Returns the seconds since the rank's last heartbeat, or 0 if this rank cannot tell.
  double SilentFor(int rank) const;
  // Returns whether the rank has been silent for longer than peer_timeout.
  bool IsSilent(int rank) const;
  // Logs each rank that has been silent for warns_after(), once per silence and node.
  void Warn() const;

 private:
  std::atomic<int64_t>& last_heartbeat(int rank) const {
    return control_->slots()[rank].last_heartbeat;
  }

  NodeControl* control_;
  const Membership* members_;
  std::chrono::nanoseconds limit_;
  std::chrono::nanoseconds interval_;
  std::atomic<int64_t> running_since_{0};
};

}  // namespace multiverso

#endif  // MULTIVERSO_LIVENESS_FAILURE_DETECTOR_H_
