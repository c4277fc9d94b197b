// FailureDetector: the signs of life that the ranks of a session give, for those that live and do
// not move: a process that was stopped looks alive to the kernel.
//
// Each rank writes the time into its slot now and then. For a node of which nothing can be seen,
// the service ranks write down when they last heard of it (ControlChannel). Whoever was stopped
// itself cannot tell who else was: it counts from when it went on.
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

  // How long a rank may be silent before that is logged.
  std::chrono::nanoseconds warns_after() const { return limit_ / 3; }
  // Since when this rank moves, in nanoseconds: its first sign of life, or the first after it had
  // been stopped. 0 before that.
  int64_t moving_since() const { return moving_since_.load(std::memory_order_relaxed); }
  // How often a rank gives a sign of life.
  std::chrono::nanoseconds interval() const { return interval_; }
  // This rank gives one.
  void Beat();
  // One of the ranks of that other node has given one, the last one if it is about to close.
  void RecordHeartbeat(int node, bool is_last);

  // Seconds without one, as far as this rank can tell; 0 if it cannot.
  double SilentFor(int rank) const;
  // Whether that is longer than a rank may be silent (peer_timeout).
  bool IsSilent(int rank) const;
  // Logs, once, who has been silent for warns_after(). One rank of the node does it.
  void Warn() const;

 private:
  std::atomic<int64_t>& heard(int rank) const { return control_->slots()[rank].heard; }

  NodeControl* control_;
  const Membership* members_;
  std::chrono::nanoseconds limit_;
  std::chrono::nanoseconds interval_;
  std::atomic<int64_t> moving_since_{0};
};

}  // namespace multiverso

#endif  // MULTIVERSO_LIVENESS_FAILURE_DETECTOR_H_
