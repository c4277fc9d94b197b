// RankContext: the parts with which one rank takes part in a session. It creates the parts in order
// and connects them. At its end it leaves the session and destroys the parts in reverse.
#pragma once

#include <memory>
#include <optional>

#include "base/status.h"
#include "group/control_channel.h"
#include "group/group.h"
#include "group/session_state.h"
#include "liveness/failure_detector.h"
#include "liveness/peer_connections.h"
#include "liveness/peer_status.h"
#include "memory/segment.h"
#include "node/membership.h"
#include "node/node_memory.h"
#include "transport/messenger.h"

namespace multiverso {

// Thread-safe except for the groups.
class RankContext final {
 public:
  // Enters this rank into the control segment of its node. A session that spans nodes needs a
  // messenger, and may have connections; both are null in a session of one node.
  static Result<std::unique_ptr<RankContext>> Join(
      Segment control, const Membership& members, std::unique_ptr<Messenger> messenger = nullptr,
      std::unique_ptr<PeerConnections> connections = nullptr);
  // Leaves the session, unless this rank has closed.
  ~RankContext();

  const Membership& members() const { return members_; }
  const NodeMemory* memory() const { return &memory_; }
  NodeMemory* memory() { return &memory_; }
  FailureDetector* failure_detector() { return &failure_detector_; }
  const PeerStatus* peers() const { return &peers_; }
  SessionState* state() { return &state_; }
  // The channel is null in a session of one node.
  ControlChannel* control_channel() const { return control_channel_.get(); }
  // The connections are null in a session of one node, or if the machine does not support them.
  PeerConnections* connections() const { return connections_.get(); }

  // Counts the collective calls of an elastic session, in which this rank may not have taken part.
  // The first is the opening of the session.
  uint32_t CountCall() { return ++calls_; }
  uint32_t calls() const { return calls_; }
  // Counts all calls up to that number as made, for the last rank of the session.
  void SkipCalls(uint32_t number) { calls_ = number; }

  // The group of all ranks of the session.
  Group* world() { return &world_; }
  // The groups of the workers of the session, and of the workers of this node; for workers only.
  Group* workers() { return workers_.has_value() ? &*workers_ : &world_; }
  Group* node_workers() { return &*node_workers_; }

 private:
  RankContext(Segment control, const Membership& members, std::unique_ptr<Messenger> messenger,
              std::unique_ptr<PeerConnections> connections);
  std::unique_ptr<ControlChannel> OpenChannel(std::unique_ptr<Messenger> messenger);
  Group MakeGroup(GroupIndex index, std::vector<int> ranks);

  const Membership members_;
  NodeMemory memory_;
  FailureDetector failure_detector_;
  const PeerStatus peers_;
  const std::unique_ptr<PeerConnections> connections_;
  const std::unique_ptr<ControlChannel> control_channel_;
  SessionState state_;
  uint32_t calls_ = 1;
  Group world_;
  std::optional<Group> workers_;  // not set if every rank is a worker
  std::optional<Group> node_workers_;
};

}  // namespace multiverso
