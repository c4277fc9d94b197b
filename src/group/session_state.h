// SessionState: whether the session still runs for this rank, and how it ends: a rank aborts it for
// all, a rank is lost, or this rank leaves or closes. The node's ranks learn it from their control
// segment, other nodes by messages and by announcements on connections (PeerConnections).
#pragma once

#include <atomic>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "group/control_channel.h"
#include "liveness/peer_connections.h"
#include "liveness/peer_status.h"
#include "node/membership.h"
#include "node/node_memory.h"

namespace multiverso {

// Thread-safe.
class SessionState final : public Abandonable {
 public:
  // The arguments outlive the state. `channel` is null in a session of one node; `connections` is
  // null there too, and where the machine supports none.
  SessionState(const Membership* members, const NodeMemory* memory, const PeerStatus* peers,
               ControlChannel* channel, PeerConnections* connections)
      : members_(members),
        memory_(memory),
        peers_(peers),
        channel_(channel),
        connections_(connections) {}

  // Ends every wait of the session's ranks, now and later. The waits return AbortedError, except
  // that a mismatch and the silence of a rank are returned to all, and another timeout to ranks
  // that were waiting already.
  void Abort(const Status& why);
  // Ends this rank's part in a call that other ranks wait for, when its caller has given up the
  // call: aborts the session, or leaves it if it is elastic, so that the others continue. Does
  // nothing if this rank has left.
  void GiveUp(const Status& why) override;
  // Like Abort, but for a thread of the library: this rank's caller does not know the error yet.
  void AbortInBackground(const Status& why);
  bool IsAborted() const { return memory_->IsAborted(); }
  // Returns the error if the session was aborted or this rank excluded. `was_waiting` says whether
  // the caller was already waiting when the session was aborted.
  Status CheckRunning(bool was_waiting);
  // Returns whether the caller of this rank made the abort or has received its error.
  bool IsAbortKnown() const { return abort_is_known_.load(std::memory_order_relaxed); }
  // Returns StateError if the other ranks have excluded this rank.
  Status CheckNotExcluded() const;

  // Returns PeerLostError about that rank with this text, or CheckRunning's error if the session
  // was aborted. Before that, reports all losses that this rank knows, since the process may end as
  // soon as its caller has the error.
  Status ReportLost(int rank, const std::string& text);
  // Stops waiting for a silent rank of this node in a session that does not survive losses: aborts
  // the session, and excludes the rank, which learns of it when it resumes. Returns the timeout.
  Status AbortForSilentRank(int rank, const std::string& waiting_in);
  // Does the same if any rank of this node is silent, for a thread of the library, so that waits
  // end that cannot tell for whom they wait: those for a lock, or for the rank on another node.
  void AbortIfAnyIsSilent();
  // Records and reports the death of a rank of another node, which a connection revealed. The
  // arguments are those of PeerConnections::DeathHandler.
  void RecordDeath(int rank, const std::string& how, int known_loss);

  // Lets all ranks know that one was told to end, so that they leave together (Session::
  // AgreeToLeave).
  void AnnounceLeaving();
  bool IsLeaving() const {
    return memory_->control()->leaving.load(std::memory_order_relaxed) != 0;
  }
  // Records and reports that this rank left, unless it has closed or left already.
  void Leave(const std::string& reason);
  // Records that this rank ended by shutdown. Called after all ranks have agreed to shut down.
  void Close();

 private:
  // Returns a timeout about a silent rank, for which this rank has waited if `meanwhile` says so.
  Status SilenceOf(int rank, const std::string& meanwhile) const;
  // Aborts the session because of a silent rank of this node, and lets that rank and the others
  // know that they do not wait for it any more.
  void AbortAndExclude(int silent_rank, const Status& timeout);
  // Tells the connected ranks that the end of this process means nothing from now on.
  void AnnounceClose() const {
    if (connections_ != nullptr) connections_->AnnounceClose();
  }

  const Membership* members_;
  const NodeMemory* memory_;
  const PeerStatus* peers_;
  ControlChannel* channel_;
  PeerConnections* connections_;
  std::atomic<bool> abort_is_known_{false};
  std::atomic<bool> is_leaving_{false};
};

}  // namespace multiverso
