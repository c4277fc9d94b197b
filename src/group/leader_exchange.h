// LeaderExchange: the exchange of a collective's payloads between nodes, by one leader per node,
// its first member.
//
// When every member on a node has begun a collective, their slots in the node's control segment
// hold the node's contribution. The n leaders have an order, in which the first follows the last.
// In step k, each sends what it has to the leader 2^k places further on, and takes as much from the
// leader 2^k places before. So it has the contributions of 2^k nodes before step k, and those of
// all nodes after log2(n) steps (Bruck's allgather). Then it writes the payloads where the ranks of
// its node read them, once if all are equal (Contributions), and the collective is complete on the
// node.
//
// A contribution may come through any node. So a leader that gives up a collective because a rank
// is lost tells nobody: the others lack its messages, and give up because of the same rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "group/contributions.h"
#include "group/control_channel.h"
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
  // Takes what that leader of another node tells this one, after all payloads have arrived. Returns
  // false if no node can have sent it.
  virtual bool Take(int leader, const std::string& attached) = 0;
  // Called after all nodes have been taken, and before the collective is complete on this node.
  virtual void Finish() = 0;
};

// Used by one thread at a time.
class LeaderExchange {
 public:
  // Exchanges payloads for that group. The pointers outlive the exchange.
  LeaderExchange(int group, const Membership* members, const NodeMemory* memory,
                 ControlChannel* channel);

  int leader() const { return leaders_[static_cast<size_t>(me_)]; }
  // Returns how many messages each leader sends.
  int steps() const {
    int steps = 0;
    while (1 << steps < num_places()) ++steps;
    return steps;
  }
  // Called by the leader when all members on its node have begun that collective. Returns ok when
  // the payloads of all nodes are in the control segment and this node's messages are sent, and
  // pending before. Never waits. `attachment` may be null.
  Status Exchange(uint64_t sequence, Attachment* attachment);

 private:
  bool IsMember(int rank) const { return group_ == kWorldGroup || members_->is_worker(rank); }
  int num_places() const { return static_cast<int>(leaders_.size()); }
  // Returns the place that is `places` further on, or before if that is negative.
  int PlaceAfter(int places) const { return (me_ + places + num_places()) % num_places(); }
  // Returns how many nodes a leader sends in that step, the last of those that it has.
  int NodesOf(int step) const { return std::min(1 << step, num_places() - (1 << step)); }
  // Returns the number of members on that many nodes of which the last is at `place`.
  int64_t MembersOf(int nodes, int place) const;
  // Begins the collective with what this node has. Returns false unless all members here have
  // begun it.
  bool Begin(uint64_t sequence, Attachment* attachment);
  // Sends what this step needs.
  Status Send();
  // Takes one message, and keeps it if a step of this or the next collective needs it.
  Status Take(bool* got);
  bool Keep(const std::string& bytes);
  bool IsValid(const ContributionsMessage& message) const;
  // Writes the payloads into the control segment.
  void Store();

  const int group_;
  const Membership* members_;
  const NodeMemory* memory_;
  ControlChannel* channel_;
  // The nodes with members have places 0, 1, ... in their order.
  std::vector<int> leaders_;
  std::vector<int> place_of_;    // by node, or -1
  std::vector<int64_t> before_;  // by place: the number of members on the nodes before
  int me_;                       // the place of this node
  uint64_t sequence_ = 0;        // the collective to which the rest belongs
  int step_ = 0;                 // the steps before this one are over
  Contributions held_;
  // Messages that came before their steps, by collective and step.
  std::map<std::pair<uint64_t, int>, Contributions> early_;
};

}  // namespace multiverso
