// Group: a set of ranks of the session that meet in shared memory.
//
// A meeting (every collective call is made of them) goes like this: each rank writes what it
// brings into its own slot, counts itself in, and sleeps on a word that the last to arrive
// changes; then each reads what the others brought. No server and no message is involved. While a
// rank waits it looks now and then whether those it waits for are still there, so that a dead, a
// departed or an aborting rank ends the wait with its name.
//
// In a session that goes on without the ranks it loses, a dead or departed one is not waited for
// any more. It has either come to a meeting before, or never will, so all who meet agree on who
// did.
//
// If the circle spans nodes, the last of a node to arrive wakes the leader of the node, which
// exchanges what was brought with the other nodes (Bridge; Muster, if the session goes on without
// lost ranks) and then lets its node go on. So the other ranks wait in memory all the same.
#ifndef MULTIVERSO_GROUP_GROUP_H_
#define MULTIVERSO_GROUP_GROUP_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "group/bridge.h"
#include "group/control_channel.h"
#include "group/muster.h"
#include "node/control_segment.h"

namespace multiverso {

class NodeGroup;

// Used by one thread at a time, by members only.
class Group {
 public:
  // Group number `index` of the group, of these ranks of the session.
  Group(NodeGroup* group, int index, std::vector<int> members);

  const std::vector<int>& members() const { return members_; }

  // Arrives at the next meeting with up to ExchangeSlot::kMostBytes; does not wait.
  void Arrive(CollectiveKind kind, const void* data = nullptr, int64_t bytes = 0);
  // Waits for the others. Mismatch if their kinds differ; the meeting is over then as well. A rank
  // that has waited until its deadline gives the session up: it will not be there when the late
  // ones come.
  Status Meet(const WaitLimit& limit);
  // Who came to the meeting just held: all members, but for those without which the session goes
  // on. The same on all who came.
  std::vector<int> present() const;
  // The number of that meeting, the same on all of them.
  uint64_t meeting() const { return meetings_; }
  // What one of them brought to it: valid until this rank's next but one Arrive.
  const ExchangeSlot& deposit(int rank) const;

 private:
  std::atomic<uint64_t>& arrivals(int rank) const;
  void Announce(std::atomic<uint32_t>* word, std::atomic<uint32_t>* sleepers) const;
  bool HasArrived(int rank) const;
  bool IsCompleted() const;
  CollectiveKind MyKind() const;
  Status CheckKinds() const;
  // Mismatch, on every rank, if one of these waits for this one in a meeting of another circle.
  Status CheckElsewhere(const std::vector<int>& late) const;
  // Those who have not arrived at this rank's meeting, and are waited for.
  std::vector<int> LateMembers(bool only_here) const;
  // PeerLost if one of these will never come, unless the session does without.
  Status CheckPeers(const std::vector<int>& late);
  // A leader that has arrived and then gone cannot carry anything any more.
  Status CheckLeaders();
  // The same in a session that does without it: counts it out, so that another one leads.
  void LookAfterLeader();
  // PeerLost if a whole node has gone: its rows have gone with it.
  Status CheckNodes();
  bool spans_nodes() const { return bridge_ != nullptr || muster_ != nullptr; }
  bool Leads() const;
  // The leader's part: until the meeting is completed, or that instant.
  Status CarryAcross(Instant until);
  // Who is late, and which nodes do not even say. False while other nodes are being asked. `first`
  // is the first of the late, or -1.
  bool FindLate(std::string* who, int* first);

  NodeGroup* group_;
  int index_;
  std::vector<int> members_;
  size_t members_here_ = 0;         // on this node
  std::unique_ptr<Bridge> bridge_;  // if not all are
  std::unique_ptr<Muster> muster_;  // or this
  NodeControl::GroupWords* words_;
  uint64_t meetings_ = 0;  // that this rank arrived at
  Instant arrived_at_{};
  bool aborted_before_ = false;  // the session was given up before this rank arrived
  std::optional<LateInquiry> inquiry_;
  std::optional<Instant> leader_gone_at_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_GROUP_GROUP_H_
