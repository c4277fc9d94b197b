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
  // The arguments outlive the state. `channel` is null in a session of one node; `connections` is
  // null there too, and where the machine supports none.
  SessionState(const Membership* members, const NodeMemory* memory, const PeerStatus* peers,
               ControlChannel* channel, PeerConnections* connections)
      : members_(members),
        memory_(memory),
        peers_(peers),
        channel_(channel),
        connections_(connections) {}

  // Ends every wait of the session's ranks, now and later. They get AbortedError, except that all
  // ranks get the same mismatch, and ranks that are already waiting get the same timeout.
  void Abort(const Status& why);
  // Aborts like Abort, from a thread of the library, so this rank's caller does not know of it yet.
  void AbortInBackground(const Status& why);
  bool IsAborted() const { return memory_->IsAborted(); }
  // Returns the error if the session was aborted or this rank excluded. `was_waiting` says whether
  // the caller has been waiting since before the abort.
  Status CheckRunning(bool was_waiting);
  // Returns whether the caller of this rank made the abort or has received its error.
  bool IsAbortKnown() const { return abort_is_known_.load(std::memory_order_relaxed); }
  // Returns StateError if the other ranks have excluded this rank.
  Status CheckNotExcluded() const;

  // Returns PeerLostError about that rank with this text. First it tells the other nodes which
  // ranks of this node died, since the process may end as soon as its caller has the error.
  Status ReportLost(int rank, const std::string& text);
  // Stops waiting for a silent rank: excludes the rank, or aborts the session if it does not
  // survive losses. Returns the timeout. The silent rank learns of its exclusion when it resumes.
  Status ExcludeSilentRank(int rank, const std::string& waiting_in);
  // Records and reports the death of a rank of another node, which a connection showed. `after` is
  // the rank whose loss the dead rank's caller knew, or -1.
  void RecordDeath(int rank, const std::string& how, int after);

  // Records and reports that this rank left, unless it has closed or left already.
  void Leave(const std::string& reason);
  // Closes this rank in order, after all ranks have agreed to shut down.
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
