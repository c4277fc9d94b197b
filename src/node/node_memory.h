// NodeMemory: one rank's access to the parts of its node's control segment (NodeControl).
//
// In a session that spans nodes, the control segment of each node has a slot for every rank of the
// session. Ranks of the node record the events of other nodes in those slots. So a waiting rank
// reads only memory, even if it waits for ranks of other nodes.
#pragma once

#include <string>

#include "base/status.h"
#include "memory/futex.h"
#include "memory/segment.h"
#include "node/control_segment.h"
#include "node/membership.h"

namespace multiverso {

// Thread-safe.
class NodeMemory {
 public:
  // Return the bytes of a control segment for that many ranks of the session, of which some are on
  // its node, and of the scratch memory behind it for that many ranks of one of several nodes.
  // Scratch memory takes no pages until used.
  static int64_t ControlBytes(int num_ranks, int local_ranks);
  static int64_t ControlBytes(const Membership& members) {
    return ControlBytes(members.capacity(), static_cast<int>(members.node_ranks().size()));
  }
  static int64_t ScratchBytes(int local_ranks, int nodes);
  // The size of each of a rank's two scratch areas on one node, which all ranks of the node can
  // read. An area fits into the second-level cache: with 4 MiB, sums of large arrays took 2.5 times
  // as long.
  static constexpr int64_t kScratchAreaBytes = int64_t{512} << 10;

  // Takes a segment of at least ControlBytes + ScratchBytes. `members` outlives the object.
  NodeMemory(Segment segment, const Membership* members);
  // Fills in this rank's slot and, on the node's first rank, NodeControl. Sets the rank alive.
  void Join() const;

  const Segment& segment() const { return segment_; }
  void ForgetInChild() { segment_.ForgetInChild(); }
  NodeControl* control() const { return control_; }
  RankSlot& slot(int rank) const { return control_->slots()[static_cast<size_t>(rank)]; }
  RankSlot& own_slot() const { return slot(members_->rank()); }
  char* scratch(int local_rank, int area) const;  // area 0 or 1 of that rank
  int64_t scratch_area_bytes() const;
  FlightRecorder* recorder() const {
    return control_->recorders(num_ranks()) + members_->local_rank();
  }
  bool HasCoreForEachRank() const { return members_->num_ranks_here() <= cores_; }
  // Returns how long the ranks of this node poll before they sleep.
  const SpinPolicy& spin_policy() const { return HasCoreForEachRank() ? kOwnCore : kSharedCore; }

  // Records for the ranks of this node that rank `by` aborted the session. The first call wins.
  void RecordAbort(int by, const Status& why) const;
  bool IsAborted() const {
    return control_->abort.load(std::memory_order_acquire) == NodeControl::kSet;
  }

  // Record a table, and the latest complete checkpoint, for error messages and observers.
  void RecordTable(int64_t table, const std::string& name, int32_t dtype, int64_t num_row,
                   int64_t num_col, int64_t capacity = 0) const;
  // Returns where the counts of a hash table are for observers, or null.
  std::atomic<int64_t>* KeyCountsOf(int64_t table) const;
  void RecordCheckpoint(const std::string& path) const;

  // Wakes the service thread of this node's leader. Does nothing in a session of one node.
  void WakeLeader() const;

 private:
  // Fills in the part of NodeControl that only an elastic session has.
  void StartElastic() const;
  int num_ranks() const { return members_->capacity(); }

  Segment segment_;
  const Membership* members_;
  NodeControl* control_;
  int64_t cores_;  // all cores of the machine, even if this rank is bound to one
};

}  // namespace multiverso
