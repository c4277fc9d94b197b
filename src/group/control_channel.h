// ControlChannel: what the nodes of a session tell each other outside of meetings and of calls:
// that a rank gave the session up, that one has left or died, and who has not come to a meeting.
//
// Every node has at least one rank with a service thread (Membership::service_ranks), and news goes
// to all of them. They write it into their node's control segment, where waiting ranks look.
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
#include "node/control_segment.h"
#include "node/sequence_numbers.h"
#include "transport/call_tags.h"
#include "transport/deferred_failure.h"
#include "transport/messenger.h"

namespace multiverso {

class NodeGroup;

// Who has not come to a meeting, as far as the other nodes have answered.
struct LateInquiry {
  std::vector<int> silent_nodes;
  std::vector<int> late_ranks;
  Instant until;
};

// Thread-safe.
class ControlChannel {
 public:
  ControlChannel(std::unique_ptr<Messenger> messenger, NodeGroup* group);

  Messenger* messenger() const { return messenger_.get(); }
  CallTags* tags() { return &tags_; }
  SequenceNumbers* numbers() { return &numbers_; }

  // Takes in the news that have come, and looks now and then whether ranks of this node have died.
  // One thread does it at a time, others return at once. True if there was any.
  bool Poll();
  // Logs, once, that a Poll has lasted for so long as a rank may be silent without a warning: then
  // MPI does not come back from a call, which nothing can end. The rank has given a sign of life
  // just before.
  void WarnIfStuck();

  // Waits a moment until it is sent: the one who gives up may be about to end.
  void SendAbort(const Status& why);
  void SendExit(int rank, RankSlot::State state, const std::string& reason);
  // The same of a rank of another node, which does not have to be told: one rank of each of the
  // others is, since all who have seen it die do so. Waits a moment, too.
  void SendDeath(int rank, const std::string& how);
  // Tells at once which ranks of this node have died, and waits a moment until it is sent: for a
  // rank that has noticed it and may be about to end.
  void SendLosses();

  // This rank is about to close: the other nodes are not to take its silence for anything else.
  void AnnounceClose();

  // Asks the service threads of the other nodes which of their ranks have not come.
  LateInquiry RequestLateRanks(int circle, uint64_t meeting);
  // Takes in the answers. True if everybody has answered.
  bool CollectAnswers(int circle, uint64_t meeting, LateInquiry* inquiry);

  // Asks that node for what its ranks brought to a meeting: the answer goes to this rank's Muster.
  void AskForMuster(int node, int circle, uint64_t meeting);

  // A message that makes no sense has come from there: it is counted, and logged the first time.
  void Drop(const char* what, int from);
  int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  // Whether any other rank has left or died, on whichever node.
  bool AnyLost() const;
  // The first of a node's service ranks that is there; the first of all if none is.
  int ServiceRankOf(int node) const;

 private:
  struct ControlMessage;
  void SendToOtherNodes(const ControlMessage& news);
  ControlMessage ExitMessage(int rank, RankSlot::State state, const std::string& reason) const;
  bool ReceiveAndCheck();
  Status ReceiveAll(bool* any);
  void Handle(const ControlMessage& news);
  void Answer(const ControlMessage& question);
  void CheckNodePeers();
  void SendDeaths();
  // In a session that goes on without it.
  void SendIfLost(int rank);
  // Lets the other nodes know, now and then, that this one is there.
  void SendHeartbeatIfDue();
  void SendHeartbeat(bool is_last);

  std::unique_ptr<Messenger> messenger_;
  NodeGroup* group_;
  CallTags tags_;
  SequenceNumbers numbers_;
  std::vector<std::vector<int>> service_ranks_;  // by node
  std::mutex polling_;
  std::atomic<int64_t> polling_since_{0};  // 0: nobody is
  std::atomic<bool> said_stuck_{false};
  DeferredFailure failure_;
  Instant looked_{};
  Instant gave_sign_{};
  bool said_goodbye_ = false;
  std::vector<bool> known_dead_;  // by rank
  std::atomic<int64_t> dropped_{0};
};

}  // namespace multiverso

#endif  // MULTIVERSO_GROUP_CONTROL_CHANNEL_H_
