// PeerStatus: what is known on this node of the ranks of the session: who is there, how those who
// are not have gone, and what each did last.
//
// Of a rank of this node the kernel tells whether its process lives, and its slot in the control
// segment the rest. The slot of a rank of another node holds the news that have come of it.
#ifndef MULTIVERSO_LIVENESS_PEER_STATUS_H_
#define MULTIVERSO_LIVENESS_PEER_STATUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "liveness/failure_detector.h"
#include "memory/robust_lock.h"
#include "memory/segment.h"
#include "node/control_segment.h"
#include "node/membership.h"

namespace multiverso {

// Thread-safe. Everything is written into the control segment, for all ranks of the node.
class PeerStatus final : public OwnerProbe {
 public:
  // Over the control segment of this rank's node. All of them have to live longer.
  PeerStatus(const Segment* control, const Membership* members,
             const FailureDetector* failure_detector);

  // Whether the process of that rank of this node exists.
  bool IsAlive(int local_rank) const override;
  // How a rank that is not there any more went, such as "(process 12) died"; empty if it is there.
  std::string ExitReason(int rank) const;
  // The first rank of another node all of whose ranks have gone; -1 if some have not.
  int FirstRankOfLostNode(int node) const;

  // In a session that survives losses: whether it goes on without that rank, which will not come to
  // any meeting that it has not come to.
  bool IsExcluded(int rank) const;
  bool AnyExcluded() const { return control_->some_lost.load() != 0; }
  // From now on it does without that rank, which has gone in this way.
  void Exclude(int rank, const std::string& gone) const;
  // Looks who has gone, and counts them out. All of them, in order; none in other sessions.
  std::vector<int> LostRanks() const;
  // The first worker that is not among them, or among `ranks`.
  int CurrentMaster() const;
  int MasterOf(const std::vector<int>& ranks) const;

  // A rank of another node left or died, and how.
  void RecordExit(int rank, RankSlot::State state, const std::string& reason,
                  const uint64_t (&arrivals)[kGroups]) const;
  // A rank of another node has been waiting in meeting arrivals[circle] of that circle.
  void RecordWaiting(int rank, int circle, CollectiveKind kind,
                     const uint64_t (&arrivals)[kGroups]) const;

  // The same error with all that is known of the rank that it is about.
  Status About(int rank, const Status& error) const;
  // What an error says of that rank: on which host it is, what it did last and when it was last
  // heard of, as far as that is known, and the last checkpoint.
  std::string Facts(int rank) const;
  // The same after its name, in brackets.
  std::string Trace(int rank) const;
  // Logs the last calls of a rank of this node that was lost, if no rank has done so yet.
  void LogLastCalls(int rank) const;

 private:
  RankSlot& slot(int rank) const { return control_->slots()[static_cast<size_t>(rank)]; }
  // On this node, as far as it is known.
  std::string LastCallOf(int rank) const;
  // The checkpoint that was completed last; empty if there was none.
  std::string Saved() const;

  const Segment* segment_;
  const Membership* members_;
  const FailureDetector* failure_detector_;
  NodeControl* control_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_LIVENESS_PEER_STATUS_H_
