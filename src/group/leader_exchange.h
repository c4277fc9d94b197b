// LeaderExchange: the exchange of a collective's payloads between nodes, by one leader per node.
//
// When every member on a node has begun a collective, the slots in the node's control segment hold
// the node's contribution (NodeContribution). The leader of a node is its first member. It sends
// the contribution to the leaders of all other nodes, and writes their contributions into its
// control segment. When all contributions are there, the collective is complete on the node.
//
// The first node with members sends its contribution last, unless it has an attachment: while that
// node's leader waits for the others, it can give up the collective for all ranks, and no other
// rank completes it. A leader that gives up before it has sent its contribution tells the others,
// since they may lack only that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "group/control_channel.h"
#include "group/node_contribution.h"
#include "node/membership.h"
#include "node/node_memory.h"

namespace multiverso {

// What the leaders attach to their contributions to one collective of ranks on several nodes. The
// payloads may show later that the ranks did not make the same call. If Group::Wait begins the
// collective again, all is packed and taken again.
class Attachment {
 public:
  virtual ~Attachment() = default;
  // Begins the collective, and returns what this node tells all others.
  virtual std::string Pack() = 0;
  // Takes what another node tells this one. Returns false if no node can have sent it.
  virtual bool Take(const NodeContribution& theirs) = 0;
  // Called after all nodes have been taken, and before the collective is complete on this node.
  virtual void Finish() = 0;
};

// Used by one thread at a time.
class LeaderExchange {
 public:
  // Exchanges payloads for that group, whose members are `ranks`. The pointers outlive the
  // exchange.
  LeaderExchange(int group, const std::vector<int>& ranks, const Membership* members,
                 const NodeMemory* memory, ControlChannel* channel);

  // Returns the leader of that node, or -1 if the node has no member.
  int LeaderOf(int node) const { return leaders_[static_cast<size_t>(node)]; }
  int leader() const { return LeaderOf(members_->node()); }
  // Called by the leader when all members on its node have begun that collective. Returns ok when
  // the payloads of all nodes are in the control segment and this node's contribution is sent, and
  // pending before. Never waits. `attachment` may be null.
  Status Exchange(uint64_t sequence, Attachment* attachment);
  // Called by the leader when it gives up that collective because a rank is lost. `kind` is that of
  // its call, marked as a failure, and `vote` the failure.
  void GiveUp(uint64_t sequence, CollectiveKind kind, const std::string& vote);
  // Returns the nodes whose contribution to that collective has not arrived.
  std::vector<int> MissingNodes(uint64_t sequence) const;

 private:
  std::atomic<uint64_t>& received(int node) const {
    return memory_->slot(LeaderOf(node)).groups[group_].received;
  }
  // Returns whether this is the first node with members.
  bool IsFirstNode() const;
  Status SendContribution(uint64_t sequence, Attachment* attachment);
  // Sends these bytes to the leaders of all other nodes.
  Status SendToOthers(const std::string& contribution);
  // Stores the contribution in `bytes`, if it is needed. Returns false if it is invalid.
  bool Store(const std::string& bytes, uint64_t sequence, Attachment* attachment);

  const int group_;
  const Membership* members_;
  const NodeMemory* memory_;
  ControlChannel* channel_;
  std::vector<int> leaders_;  // by node
  // By node: a contribution to the next collective that cannot be stored yet.
  std::vector<std::string> early_;
  uint64_t begun_ = 0;  // the latest collective for which the early contributions were stored
  uint64_t sent_ = 0;   // the latest collective whose contribution this rank has sent
};

}  // namespace multiverso
