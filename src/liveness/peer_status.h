// PeerStatus: what this node knows about each rank of the session: alive, closed (ended by
// shutdown), left (ended without shutdown), died (process ended), or excluded (declared lost after
// peer_timeout, or removed because the session continues without it). A lost rank has left, died or
// been excluded.
//
// For a rank of this node, the kernel reports whether the process exists, and the rank's slot in
// the control segment holds the rest. For a rank of another node, the slot holds the reports of
// connections that ended (PeerConnections) and of other nodes (ControlChannel).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "liveness/failure_detector.h"
#include "memory/presence.h"
#include "memory/robust_lock.h"
#include "node/membership.h"
#include "node/node_memory.h"

namespace multiverso {

// Thread-safe. Writes only into the control segment, so all ranks of the node see the changes, and
// ends the processes of silent ranks (IsAlive).
class PeerStatus final : public OwnerProbe {
 public:
  // The arguments outlive the status.
  PeerStatus(const NodeMemory* memory, const Membership* members,
             const FailureDetector* failure_detector);

  // Returns false if the process of that rank of this node has ended, or if there is no such rank.
  // In a session that survives losses, excludes the rank if it is silent, and ends its process, so
  // that it changes nothing more, and its locks are free. Where the process cannot be ended, the
  // rank is lost but alive.
  bool IsAlive(int local_rank) const override;
  // Returns a timeout if that rank of this node was excluded because it was silent, and no rank can
  // end its process or may do so.
  Status CheckWait(int local_rank) const override;
  // Returns whether that rank has sent no heartbeat for longer than peer_timeout.
  bool IsSilent(int rank) const { return failure_detector_->IsSilent(rank); }
  // Returns whether the session must end because of that rank: it is one of this node, takes part,
  // and is silent, and the session does not survive losses.
  bool EndsSession(int rank) const {
    return !members_->survives_losses() && members_->is_local(rank) && IsSilent(rank) &&
           memory_->slot(rank).state.load(std::memory_order_acquire) == RankSlot::kAlive;
  }
  // Returns the seconds since that rank's last heartbeat, or 0 if this rank cannot tell.
  double SilentFor(int rank) const { return failure_detector_->SilentFor(rank); }
  // Returns whether this rank has missed several of its own heartbeats: it was suspended, and
  // others may count it as lost.
  bool HasMissedHeartbeats() const { return failure_detector_->HasMissedHeartbeats(); }
  // Returns how a rank was lost, such as "(process 12) died"; empty if it is not lost. A rank of
  // this node that closed also "died" once its process has ended. The loss of a silent rank of
  // another node is recorded here, so that the rank stays lost if it resumes.
  std::string ExitReason(int rank) const;
  bool IsLost(int rank) const { return !ExitReason(rank).empty(); }
  // Returns the rank's name and how it was lost: "rank 1 (process 12) died", or "rank 1 was lost"
  // if this node does not know yet.
  std::string EndOf(int rank) const;
  // Returns PeerLost about a lost rank; its text is EndOf and `consequence`.
  Status LossOf(int rank, const std::string& consequence) const;
  // Returns whether any other rank of the session has an ExitReason.
  bool AnyLost() const;
  // Returns whether any other rank has died, as far as this rank can tell, or its node is
  // silent.
  bool AnyDied() const;
  // Returns whether any rank, this one too, was excluded because it was silent.
  bool AnyExcludedForSilence() const;

  // Returns whether the other ranks continue without that rank. An excluded rank begins no further
  // collective. Always false in a session that does not survive losses. In an elastic session, the
  // others also continue without a rank that has shut down. Also false for this rank if others have
  // excluded it, so that each list of participants has the rank that makes it: the call of such a
  // rank fails (SessionState::CheckNotExcluded).
  bool IsExcluded(int rank) const;
  // Returns the rank that has excluded that rank because it was silent, or -1 if none has.
  int ExcludedBy(int rank) const {
    return memory_->slot(rank).excluded_by.load(std::memory_order_acquire) - 1;
  }
  bool IsExcludedForSilence(int rank) const { return ExcludedBy(rank) >= 0; }
  // Returns what is 0 until another rank has excluded this one because it was silent.
  const std::atomic<int32_t>& own_exclusion() const { return memory_->own_slot().excluded_by; }
  // Returns whether a rank of this node has found that rank of another node silent.
  bool WasFoundSilentHere(int rank) const {
    const int by = ExcludedBy(rank);
    return by >= 0 && members_->is_local(by) && !members_->is_local(rank);
  }
  // Returns whether this node has recorded the loss of any rank. Cheaper than AnyLost, which checks
  // every rank.
  bool HasRecordedLoss() const { return memory_->control()->some_lost.load() != 0; }
  // Excludes a rank if it is lost.
  void ExcludeIfLost(int rank) const;
  // Excludes the ranks of this node that have ended, and returns all excluded ranks, in order.
  // Returns none in a session that does not survive losses.
  std::vector<int> EndedRanks() const;
  // Returns the same without ranks of an elastic session that have shut down.
  std::vector<int> LostRanks() const;
  // Return the first worker that is not lost, and the first worker among `ranks`. If there is no
  // such worker, both return the original master.
  int CurrentMaster() const;
  int MasterOf(const std::vector<int>& ranks) const;

  // Records that rank `by` has found that rank silent, unless another has before.
  void RecordExclusion(int rank, int by) const;
  // Records that a rank of another node left or died. Only the first report counts. `sequences`
  // holds, for each group, the latest collective that the rank had begun, or 0 if it is unknown.
  // `excluded_by` is the rank that has found it silent, so that it may run again, or -1.
  void RecordExit(int rank, RankSlot::State state, const std::string& reason,
                  const uint64_t (&sequences)[kGroups], int excluded_by = -1) const;
  // Records that a rank of another node waits in collective sequences[group] of that group, which
  // has that kind. `sequences` is as in RecordExit.
  void RecordWaiting(int rank, int group, CollectiveKind kind,
                     const uint64_t (&sequences)[kGroups]) const;
  // Returns the name of a collective of the world or of the workers that `rank` has begun and this
  // rank has not, so that `rank` waits for this rank. Null if there is no such collective. For a
  // rank of another node, it is known only after RecordWaiting.
  const char* CollectiveAwaitedBy(int rank) const;

  // Returns the error with the known facts about that rank and about this rank's last call.
  Status About(int rank, const Status& error) const;
  // Returns the known facts for an error message: host, last call, time since the last heartbeat,
  // last checkpoint.
  // `last_call` is that of a rank of another node, if it has told it.
  std::string Facts(int rank, const std::string& last_call = "") const;
  // Returns Facts in parentheses, to follow the rank's name.
  std::string Trace(int rank, const std::string& last_call = "") const;
  // Returns the last call of a rank of this node, or "".
  std::string LastCallOf(int rank) const;
  // Returns whether the caller logs a line that names this rank as late: at most one thread of this
  // node does in the time WaitLines::kEvery.
  bool TakeLineAbout(int rank) const;
  // Logs the last calls of a lost rank if it is a rank of this node, once for all ranks here.
  void LogLastCalls(int rank) const;

 private:
  // Returns whether this rank, whose last allgather has that number, takes part in the latest call
  // of an elastic session and has not begun it. Always true in other sessions.
  bool TakesPartNow(uint64_t sequence) const;
  // Records and logs that the session continues without that rank. `reason` has the form of
  // ExitReason.
  void Exclude(int rank, const std::string& reason) const;
  // Excludes a silent rank of this node, and ends its process if that is possible.
  void Fence(int rank) const;
  // Returns how a rank of this node was lost.
  std::string EndHere(int rank) const;
  std::string LastCheckpoint() const;

  const NodeMemory* memory_;
  const Membership* members_;
  const FailureDetector* failure_detector_;
  mutable ProcessWatch processes_;  // of the ranks of this node, by their local ranks
};

}  // namespace multiverso
