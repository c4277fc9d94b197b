// SessionState: whether the session still runs for this rank, and how it ends: a rank aborts it for
// all, a rank is lost, or this rank leaves or closes. A change is recorded in the node's control
// segment, sent to the other nodes, and announced on the connections with their ranks.
#ifndef MULTIVERSO_GROUP_SESSION_STATE_H_
#define MULTIVERSO_GROUP_SESSION_STATE_H_

#include <atomic>
#include <string>

#include "base/status.h"
#include "group/control_channel.h"
#include "liveness/peer_connections.h"
#include "liveness/peer_status.h"
#include "node/membership.h"
#include "node/node_memory.h"

namespace multiverso {

// Thread-safe.
class SessionState {
 public:
  // All of them outlive it. `channel` is null in a session of one node; `connections` is null
  // there, and where the machine offers none.
  SessionState(const Membership* members, const NodeMemory* memory, const PeerStatus* peers,
               ControlChannel* channel, PeerConnections* connections)
      : members_(members),
        memory_(memory),
        peers_(peers),
        channel_(channel),
        connections_(connections) {}

  // Ends every wait of the session's ranks, now and later. They get AbortedError; but a mismatch is
  // the same mismatch for all, and a timeout the same timeout for ranks that are waiting already.
  void Abort(const Status& why);
  // As Abort, for a thread of the library: the caller of this rank has yet to be told.
  void AbortInBackground(const Status& why);
  bool IsAborted() const { return memory_->IsAborted(); }
  // The error if the session was aborted or this rank excluded. `was_waiting`: since before that.
  Status CheckRunning(bool was_waiting);
  // Whether the caller of this rank knows of the abort: it made it, or was told.
  bool IsAbortKnown() const { return abort_is_known_.load(std::memory_order_relaxed); }
  // StateError if the other ranks have excluded this one.
  Status CheckNotExcluded() const;

  // Returns PeerLostError about that rank with this text. The other nodes are told first which
  // ranks of this node died, since the process may end as soon as its caller has the error.
  Status ReportLost(int rank, const std::string& text);
  // Stops waiting for a silent rank: excludes it, or aborts the session if it does not survive
  // losses. Returns the timeout. The rank learns of it when it resumes.
  Status ExcludeSilentRank(int rank, const std::string& waiting_in);
  // A connection shows that a rank of another node has died. `after`: the rank whose loss its
  // caller had been told before, or -1.
  void RecordDeath(int rank, const std::string& how, int after);

  // This rank takes part in nothing any more.
  void Leave(const std::string& reason);
  // The orderly end, after all ranks have agreed on it.
  void Close();

 private:
  // Makes the end of this process meaningless to the other ranks from now on.
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

#endif  // MULTIVERSO_GROUP_SESSION_STATE_H_
