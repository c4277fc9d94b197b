// PeerStatus: what this node knows about each rank of the session: alive, closed (orderly end),
// left (ended without shutdown), died (process ended), or excluded (declared lost after
// peer_timeout, or removed because the session continues without it). A lost rank has left, died or
// been excluded.
//
// For a rank of this node, the kernel tells whether the process exists, and the rank's slot in the
// control segment the rest. The slot of a rank of another node holds what that node has reported.
#ifndef MULTIVERSO_LIVENESS_PEER_STATUS_H_
#define MULTIVERSO_LIVENESS_PEER_STATUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "liveness/failure_detector.h"
#include "memory/robust_lock.h"
#include "node/membership.h"
#include "node/node_memory.h"

namespace multiverso {

// Thread-safe. It writes into the control segment only, for all ranks of the node.
class PeerStatus final : public OwnerProbe {
 public:
  // All of them outlive it.
  PeerStatus(const NodeMemory* memory, const Membership* members,
             const FailureDetector* failure_detector);

  // Whether the process of that rank of this node exists.
  bool IsAlive(int local_rank) const override;
  // Whether that rank has sent no heartbeat for longer than peer_timeout.
  bool IsSilent(int rank) const { return failure_detector_->IsSilent(rank); }
  // Seconds since that rank's last heartbeat; 0 if this rank cannot tell.
  double SilentFor(int rank) const { return failure_detector_->SilentFor(rank); }
  // How a lost rank ended, as a predicate such as "(process 12) died"; empty if it is not lost.
  std::string ExitReason(int rank) const;
  // Whether any other rank has left or died, on any node.
  bool AnyLost() const;
  // The first rank of another node all of whose ranks are lost; -1 if some are not.
  int FirstRankOfLostNode(int node) const;

  // Whether a session that survives losses continues without that rank. An excluded rank begins no
  // further collective.
  bool IsExcluded(int rank) const;
  // Whether any rank has been excluded or has left.
  bool AnyExcluded() const { return memory_->control()->some_lost.load() != 0; }
  // Continues without that rank, which ended in this way.
  void Exclude(int rank, const std::string& reason) const;
  // Excludes the ranks that have ended, and returns all excluded ones, in order. Empty in a session
  // that does not survive losses.
  std::vector<int> LostRanks() const;
  // The first worker that is not lost, and the first one among `ranks`.
  int CurrentMaster() const;
  int MasterOf(const std::vector<int>& ranks) const;

  // Another node reported that one of its ranks left or died, and the latest collective of each
  // group that the rank had begun.
  void RecordExit(int rank, RankSlot::State state, const std::string& reason,
                  const uint64_t (&sequences)[kGroups]) const;
  // Another node reported that one of its ranks is waiting in a collective of that kind: number
  // sequences[group] of that group.
  void RecordWaiting(int rank, int group, CollectiveKind kind,
                     const uint64_t (&sequences)[kGroups]) const;
  // The name of the collective in which that rank waits for this one, or null: a collective of the
  // world or of the workers that this rank has not begun. For ranks of other nodes it becomes known
  // through RecordWaiting.
  const char* CollectiveAwaitedBy(int rank) const;

  // Returns the error together with the known facts about its rank.
  Status About(int rank, const Status& error) const;
  // Returns the known facts for an error message: host, last call, time since the last heartbeat,
  // last checkpoint.
  std::string Facts(int rank) const;
  // Returns the same facts in brackets, to follow the rank's name.
  std::string Trace(int rank) const;
  // Logs the last calls of a lost rank of this node, once per node.
  void LogLastCalls(int rank) const;

 private:
  std::string LastCallOf(int rank) const;
  std::string LastCheckpoint() const;

  const NodeMemory* memory_;
  const Membership* members_;
  const FailureDetector* failure_detector_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_LIVENESS_PEER_STATUS_H_
