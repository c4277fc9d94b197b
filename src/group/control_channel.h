// ControlChannel: messages between the nodes of a session outside of collectives and of calls on
// tables: a rank aborted the session, a rank left or died, a node is alive, and questions of
// leaders.
//
// Every node has at least one rank with a service thread (Membership::service_ranks), and control
// messages go to all of them. They record them in their node's control segment, where waiting ranks
// look.
#ifndef MULTIVERSO_GROUP_CONTROL_CHANNEL_H_
#define MULTIVERSO_GROUP_CONTROL_CHANNEL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "liveness/failure_detector.h"
#include "liveness/peer_status.h"
#include "node/membership.h"
#include "node/node_memory.h"
#include "node/sequence_numbers.h"
#include "transport/call_tags.h"
#include "transport/deferred_failure.h"
#include "transport/messenger.h"

namespace multiverso {

// The ranks that have not begun a collective, as far as the other nodes have answered.
struct LateInquiry {
  std::vector<int> silent_nodes;
  std::vector<int> late_ranks;
  Instant until;
};

// Thread-safe.
class ControlChannel {
 public:
  // All of them outlive it.
  ControlChannel(std::unique_ptr<Messenger> messenger, const Membership* members,
                 const NodeMemory* memory, FailureDetector* failure_detector,
                 const PeerStatus* peers);

  Messenger* messenger() const { return messenger_.get(); }
  CallTags* tags() { return &tags_; }
  SequenceNumbers* numbers() { return &numbers_; }

  // Handles the messages that have come, and checks now and then whether ranks of this node have
  // died. One thread does it at a time; others return at once. True if a message came.
  bool Poll();
  // Logs, once, that a Poll has lasted so long that a silent rank would be warned about: then a
  // call of MPI hangs, and nothing can end it. The rank has sent a heartbeat just before.
  void WarnIfStuck();

  // These wait a moment until the message is sent, since the process may be about to end.
  // This rank aborts the session.
  void SendAbort(const Status& why);
  // A rank of another node died. One rank of each further node is told, since every rank that sees
  // the death tells it.
  void SendDeath(int rank, const std::string& how);
  // Reports the ranks of this node that have died.
  void SendLosses();

  // A rank of this node left or died. Does not wait.
  void SendExit(int rank, RankSlot::State state, const std::string& reason);
  // This rank is about to close: its silence means nothing from now on.
  void AnnounceClose();

  // Asks the other nodes which of their ranks have not begun a collective.
  LateInquiry RequestLateRanks(int group, uint64_t sequence);
  // Receives the answers. True if all nodes have answered.
  bool CollectAnswers(int group, uint64_t sequence, LateInquiry* inquiry);

  // Asks that node for its contribution to a collective. The answer goes to this rank's
  // LeaderExchange.
  void RequestContribution(int node, int group, uint64_t sequence);

  // Counts an invalid message, and logs the first one. `from` is its sender, or -1 if unknown.
  void ReportInvalid(const char* expected, int from);
  int64_t invalid_messages() const { return invalid_.load(std::memory_order_relaxed); }

  // The first of a node's service ranks that is not lost; the first of all if all are.
  int ServiceRankOf(int node) const;

 private:
  struct ControlMessage;
  void SendToOtherNodes(const ControlMessage& message);
  void SendTo(int node, const ControlMessage& message);
  ControlMessage ExitMessage(int rank, RankSlot::State state, const std::string& reason) const;
  ControlMessage Question(uint32_t kind, int group, uint64_t sequence) const;
  bool ReceiveAndCheck();
  Status ReceiveAll(bool* any);
  // Returns false if the message is invalid.
  bool Handle(const ControlMessage& message);
  void AnswerLateRanks(const ControlMessage& question);
  void CheckNodePeers();
  void SendDeaths();
  // Excludes the rank if it is lost, and reports it, in a session that survives losses.
  void SendIfLost(int rank);
  void SendHeartbeatIfDue();
  void SendHeartbeat(bool is_last);

  std::unique_ptr<Messenger> messenger_;
  const Membership* members_;
  const NodeMemory* memory_;
  FailureDetector* failure_detector_;
  const PeerStatus* peers_;
  CallTags tags_;
  SequenceNumbers numbers_;
  std::vector<std::vector<int>> service_ranks_;  // by node
  std::mutex polling_;
  std::atomic<int64_t> polling_since_{0};  // 0: no thread polls
  std::atomic<bool> stuck_logged_{false};
  DeferredFailure failure_;
  Instant checked_{};
  Instant heartbeat_sent_{};
  bool is_closing_ = false;
  std::vector<bool> reported_;  // by rank: whether its death has been reported
  std::atomic<int64_t> invalid_{0};
};

}  // namespace multiverso

#endif  // MULTIVERSO_GROUP_CONTROL_CHANNEL_H_
