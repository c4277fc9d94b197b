// NodeGroup: the ranks of one node, as they know each other through their control segment: who is
// there, who has gone and why, and whether somebody gave the session up.
#ifndef MULTIVERSO_TRANSPORT_NODE_GROUP_H_
#define MULTIVERSO_TRANSPORT_NODE_GROUP_H_

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/robust_lock.h"
#include "memory/segment.h"
#include "transport/circle.h"
#include "transport/membership.h"
#include "transport/node_control.h"

namespace multiverso {

// Thread-safe but for its circles.
class NodeGroup final : public OwnerProbe {
 public:
  // Takes this rank's place in the control segment of its node.
  static Result<std::unique_ptr<NodeGroup>> Join(Segment control, const Membership& members);
  // Leaves, if it has not closed.
  ~NodeGroup() override;

  int local_rank() const { return local_rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int rank() const { return rank_of(local_rank_); }
  // The session's number of a rank of this node.
  int rank_of(int local_rank) const { return ranks_[static_cast<size_t>(local_rank)]; }

  Circle* everybody() { return &circles_.front(); }
  // Only for workers.
  Circle* workers() { return &circles_.back(); }

  // Ends every wait of the node's ranks, now and later: with AbortedError, or, where `why` is a
  // mismatch, with the same mismatch, or, where it is a timeout, with the same timeout for those
  // that are waiting already.
  void Abort(const Status& why);
  bool IsAborted() const;
  // The error if a rank of this node has done that. `was_waiting`: since before it happened.
  Status CheckAborted(bool was_waiting);
  // Whether this rank's caller has been told, or did it.
  bool AbortIsKnown() const { return abort_is_known_.load(std::memory_order_relaxed); }
  // Tells the others that this rank will not come any more.
  void Leave(const std::string& reason);
  // The orderly end, after everybody met for it.
  void Close();

  // Whether the process of that rank exists.
  bool IsAlive(int local_rank) const override;
  // The name of the collective call in which that rank waits for this one, or null: it has come to
  // a meeting, of everybody or of the workers, to which this rank has not.
  const char* MeetingAheadOf(int local_rank) const;
  // How a rank that is not there any more went, such as "(process 12) died"; empty if it is there.
  std::string WhyGone(int local_rank) const;

  // The control segment's bytes for the words of `ranks` ranks, and for their scratch memory, which
  // takes no pages before it is used.
  static int64_t ControlBytes(int ranks);
  static int64_t ScratchBytes(int ranks);
  // Memory of that rank for passing things on, readable by all: two areas to use in turn. Small enough
  // to stay in the second-level cache: at 4 MiB, sums of large arrays took 2.5 times as long.
  static constexpr int64_t kScratchAreaBytes = int64_t{512} << 10;
  char* scratch(int local_rank, int area) const;

  NodeControl* control() const { return control_; }
  RankSlot& slot(int local_rank) const {
    return control_->slots()[static_cast<size_t>(local_rank)];
  }

 private:
  NodeGroup(Segment control, const Membership& members);

  Segment segment_;
  NodeControl* control_;
  std::vector<int> ranks_;
  int local_rank_;
  std::vector<Circle> circles_;
  std::atomic<bool> abort_is_known_{false};
  std::atomic<bool> leaving_{false};
};

}  // namespace multiverso

#endif  // MULTIVERSO_TRANSPORT_NODE_GROUP_H_
