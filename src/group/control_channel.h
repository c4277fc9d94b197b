// ControlChannel: messages between the nodes of a session, outside of collectives and of calls on
// tables. They report that a rank aborted the session, left or died, that all are to leave, or that
// a node is alive, and carry the question of a leader for late ranks.
//
// Control messages go to the ranks with a service thread, of which every node has at least one
// (Membership::service_ranks). The service thread records a report in the control segment of its
// node, where waiting ranks look, and answers the leader that asked.
//
// A heartbeat of a node goes to one rank of each other node: the one from which that node's last
// heartbeat came. If that rank is suspended, the next service rank of its node speaks for the node
// after three intervals, and receives the heartbeats from then on. A node from which a heartbeat is
// missing gets heartbeats at all its service ranks, because it may not know who speaks for this
// node.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "group/control_message.h"
#include "liveness/failure_detector.h"
#include "liveness/peer_status.h"
#include "node/membership.h"
#include "node/node_memory.h"
#include "transport/call_tags.h"
#include "transport/deferred_failure.h"
#include "transport/messenger.h"

namespace multiverso {

// Thread-safe.
class ControlChannel {
 public:
  // The arguments outlive the channel.
  ControlChannel(std::unique_ptr<Messenger> messenger, const Membership* members,
                 const NodeMemory* memory, FailureDetector* failure_detector,
                 const PeerStatus* peers);

  Messenger* messenger() const { return messenger_.get(); }
  const Membership& members() const { return *members_; }
  CallTags* tags() { return &tags_; }

  // Handles the messages that have arrived, and checks periodically whether ranks of this node have
  // died. Returns whether a message other than a heartbeat arrived: heartbeats announce no others.
  // Returns false at once if another thread is polling.
  bool Poll();
  // Handles the messages that have arrived, even if another thread is polling: waits for it, at
  // most for kSendTimeout.
  void CatchUp();
  // Logs, once, that a Poll has lasted for FailureDetector::warns_after: a call of MPI hangs, and
  // nothing can end the call. Called just after a heartbeat of this rank.
  void WarnIfStuck();

  // Sends an event to the service ranks of all other nodes. Does not wait.
  void Send(const ControlMessage& event);
  // Sends a message to the node's first service rank that is not lost. Does not wait.
  void SendTo(int node, const ControlMessage& message);

  // These wait briefly until their messages are sent, since the process may be about to end. If
  // another thread hangs in MPI (WarnIfStuck), no message is sent.
  void SendAndWait(const ControlMessage& event);
  // Reports that a rank of another node died, to one service rank of each third node. One receiver
  // is enough, since every rank that sees the death reports it.
  void SendDeath(int rank, const std::string& how);
  // Reports the ranks of this node whose loss this rank has not reported yet.
  void SendLosses();

  // Called when this rank has closed or left, and no rank waits for it any more. The last rank of
  // the node tells the others that the node's silence means nothing from now on.
  void AnnounceClose();

  // Counts an invalid message, and logs the first one. `from` is the sender, or -1 if unknown.
  void ReportInvalid(const char* expected, int from);
  int64_t invalid_messages() const { return invalid_.load(std::memory_order_relaxed); }

  // Returns the node's first service rank that is not lost, or the first one if all are lost.
  int ServiceRankOf(int node) const;

 private:
  void SendToAllOf(int node, const ControlMessage& message);
  // What has arrived.
  struct Received {
    bool any = false;
    bool any_but_heartbeats = false;
  };
  Received ReceiveAndCheck();
  Status ReceiveAll(Received* received);
  // Returns false if the message is invalid.
  bool Handle(const ControlMessage& message);
  // Handles the report of another node that this node was silent.
  bool HandleOwnExclusion(const ControlMessage& message);
  void CheckNodePeers();
  void SendNewLosses();  // called with polling_ held
  // Reports to all nodes, that of the rank included, that this node has found a rank of another
  // node silent. What this node was told is reported by the node that has found it.
  void SendIfSilent(int rank);
  void SendHeartbeatIfDue();
  // Sends a heartbeat of this node. The last one goes to all service ranks of the other nodes,
  // which would otherwise count the node as silent.
  void SendHeartbeat(bool is_last);
  // Returns whether this rank is the first service rank of its node that runs.
  bool SpeaksForNode() const;

  std::unique_ptr<Messenger> messenger_;
  const Membership* members_;
  const NodeMemory* memory_;
  FailureDetector* failure_detector_;
  const PeerStatus* peers_;
  CallTags tags_;                                // for this rank's calls on tables of other nodes
  std::vector<std::vector<int>> service_ranks_;  // by node
  std::vector<int> speakers_;                    // by node: from which rank its last heartbeat came
  std::mutex polling_;
  std::atomic<int64_t> polling_since_{0};  // in nanoseconds of Clock; 0 while no thread polls
  std::atomic<bool> stuck_logged_{false};
  DeferredFailure failure_;
  Instant last_check_{};
  Instant last_heartbeat_{};
  bool has_closed_ = false;     // and sends no heartbeats any more
  std::vector<bool> reported_;  // by rank: whether this rank has reported its loss
  std::atomic<int64_t> invalid_{0};
};

}  // namespace multiverso
