// FailureDetector: heartbeats, which reveal ranks whose process exists but does not run. The kernel
// cannot reveal them, since it reports a suspended process as alive.
//
// Each rank writes the time into its slot once a second, more often if peer_timeout is short, and
// more rarely in a job of more than 500 nodes. For another node, the service ranks record in the
// slot of its first rank when they last received a heartbeat (ControlChannel). A rank that was
// suspended counts the silence of others only from its own next heartbeat, since it cannot know
// which others were suspended too.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "node/control_segment.h"
#include "node/membership.h"

namespace multiverso {

// Thread-safe.
class FailureDetector {
 public:
  FailureDetector(NodeControl* control, const Membership* members);

  // Returns how long a rank may be silent before a warning is logged.
  std::chrono::nanoseconds warns_after() const { return timeout_ / 3; }
  // Returns when this rank started to run, in nanoseconds of Clock: its first heartbeat, or the
  // first after it was suspended. Returns 0 before the first heartbeat.
  int64_t running_since() const { return running_since_.load(std::memory_order_relaxed); }
  // Returns the time between two heartbeats of a rank.
  std::chrono::nanoseconds interval() const { return interval_; }
  // Records a heartbeat of this rank.
  void Beat();
  // Returns whether this rank has missed several of its own heartbeats: it was suspended, and
  // others may count it as lost.
  bool HasMissedHeartbeats() const;
  // Records a heartbeat of another node. After its last one, the node's silence means nothing.
  void RecordHeartbeat(int node, bool is_last);
  // Returns whether the next heartbeat of another node is late.
  bool MissesHeartbeat(int node) const;

  // Returns the seconds since the rank's last heartbeat; 0 if this rank cannot tell, since it knows
  // no heartbeat, has missed its own, or no rank of its node hears of that node.
  double SilentFor(int rank) const;
  // Returns whether the rank has missed several heartbeats, as far as this rank can tell.
  bool HasMissedHeartbeats(int rank) const;
  // Returns whether the rank has been silent for longer than peer_timeout.
  bool IsSilent(int rank) const;
  // Logs each rank that has been silent for warns_after(), once per silence for all ranks here.
  void WarnOfSilentRanks() const;

 private:
  std::atomic<int64_t>& last_heartbeat(int rank) const {
    return control_->slots()[rank].last_heartbeat;
  }
  // Returns the rank in whose slot the heartbeats of that rank are.
  int SlotOf(int rank) const {
    return members_->is_local(rank) ? rank : members_->ranks_of(members_->node_of(rank)).front();
  }
  // Returns the first rank of this node that receives the heartbeats of other nodes and runs, or
  // -1.
  int FirstListener(int64_t now) const;
  // Logs that those ranks have been silent, if the first one is and nothing has been logged.
  void WarnIfSilent(const int* ranks, size_t count) const;

  NodeControl* control_;
  const Membership* members_;
  std::vector<int> listeners_;  // the ranks of this node that receive heartbeats of others
  std::chrono::nanoseconds timeout_;
  std::chrono::nanoseconds interval_;
  std::atomic<int64_t> running_since_{0};
};

}  // namespace multiverso
