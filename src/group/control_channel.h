// ControlChannel: messages between the nodes of a session, outside of collectives and of calls on
// tables. They report that a rank aborted the session, left or died, or that a node is alive, and
// carry the questions of leaders.
//
// Every node has at least one rank with a service thread (Membership::service_ranks). Service
// threads record the control messages in the control segment of their node, where waiting ranks
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

// An inquiry for the ranks that have not begun a collective, with the answers received so far.
struct LateInquiry {
  std::vector<int> silent_nodes;
  std::vector<int> late_ranks;
  Instant until;
};

// Thread-safe.
class ControlChannel {
 public:
  // The arguments outlive the channel.
  ControlChannel(std::unique_ptr<Messenger> messenger, const Membership* members,
                 const NodeMemory* memory, FailureDetector* failure_detector,
                 const PeerStatus* peers);

  Messenger* messenger() const { return messenger_.get(); }
  CallTags* tags() { return &tags_; }
  SequenceNumbers* numbers() { return &numbers_; }

  // Handles the messages that have arrived, and checks periodically whether ranks of this node have
  // died. Returns whether a message arrived. Returns false at once if another thread is polling.
  bool Poll();
  // Logs, once, that a Poll has lasted so long that a silent rank would be warned about: a call of
  // MPI then hangs, and nothing can end the call. Called just after a heartbeat of this rank.
  void WarnIfStuck();

  // SendAbort, SendDeath and SendLosses wait briefly until their messages are sent, since the
  // process may be about to end. SendAbort reports that this rank aborts the session.
  void SendAbort(const Status& why);
  // Reports that a rank of another node died, to one rank of each further node. One receiver is
  // enough, since every rank that sees the death reports it.
  void SendDeath(int rank, const std::string& how);
  // Reports the ranks of this node that have died.
  void SendLosses();

  // Reports that a rank of this node left or died. Does not wait.
  void SendExit(int rank, RankSlot::State state, const std::string& reason);
  // Announces that this rank is about to close, so that its silence means nothing from now on.
  void AnnounceClose();

  // Asks the other nodes which of their ranks have not begun that collective.
  LateInquiry RequestLateRanks(int group, uint64_t sequence);
  // Receives the answers that have arrived. Returns whether all nodes have answered.
  bool CollectAnswers(int group, uint64_t sequence, LateInquiry* inquiry);

  // Asks that node for its contribution to a collective. LeaderExchange receives the answer.
  void RequestContribution(int node, int group, uint64_t sequence);

  // Counts an invalid message, and logs the first one. `from` is the sender, or -1 if unknown.
  void ReportInvalid(const char* expected, int from);
  int64_t invalid_messages() const { return invalid_.load(std::memory_order_relaxed); }

  // Returns the first service rank of the node that is not lost, or its first one if all are lost.
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
  // Excludes and reports the rank if it is lost. Used in sessions that survive losses.
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
  std::atomic<int64_t> polling_since_{0};  // 0 while no thread polls
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
