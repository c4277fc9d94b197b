// Group: a set of ranks of the session with a split-phase allgather, of which every collective call
// is made.
//
// Each rank writes its payload into its own slot, counts itself in, and sleeps on a word that the
// last rank changes; then each reads the payloads of the others. No server and no message is
// involved. A waiting rank checks now and then whether the ranks it waits for are still alive, so a
// rank that died, left or aborted ends the wait with its name.
//
// In a session that survives losses, a lost rank is no longer waited for. It has either begun a
// collective before, or never will, so all others agree on the participants.
//
// If the group spans nodes, the last rank of a node wakes the leader of the node, which exchanges
// the payloads with the other nodes (LeaderExchange) and then wakes its node. So all other ranks
// wait in memory there too.
#ifndef MULTIVERSO_GROUP_GROUP_H_
#define MULTIVERSO_GROUP_GROUP_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "group/control_channel.h"
#include "group/leader_exchange.h"
#include "group/session_state.h"
#include "liveness/peer_status.h"
#include "node/membership.h"
#include "node/node_memory.h"

namespace multiverso {

// Used by one thread at a time, by members only.
class Group {
 public:
  // The group with this number, of these ranks of the session. The others outlive it; `channel` is
  // null in a session of one node.
  Group(int index, std::vector<int> ranks, const Membership* members, const NodeMemory* memory,
        const PeerStatus* peers, SessionState* state, ControlChannel* channel);

  const std::vector<int>& members() const { return ranks_; }

  // Begins the next collective with a payload of up to ExchangeSlot::kMaxBytes; does not wait.
  void BeginAllgather(CollectiveKind kind, const void* data = nullptr, int64_t bytes = 0);
  // Waits for the other members. Mismatch if their kinds differ; the collective is complete then as
  // well. At the deadline the rank aborts the session, since it will not be there when the late
  // ranks begin.
  Status Wait(const WaitLimit& limit);
  // The ranks that took part in the last collective: all members that were not lost before. The
  // same on all of them.
  std::vector<int> participants() const;
  // The number of that collective, the same on all of them.
  uint64_t sequence() const { return sequence_; }
  // The payload of a participant: valid until this rank begins the next collective but one.
  const ExchangeSlot& payload(int rank) const;

 private:
  bool HasBegun(int rank) const;
  bool IsCompleted() const;
  void Announce(std::atomic<uint32_t>* word, std::atomic<uint32_t>* sleepers) const;
  CollectiveKind OwnKind() const;
  Status CheckKinds() const;
  // Mismatch, on every rank, if one of these waits for this one in a collective of another group.
  Status CheckElsewhere(const std::vector<int>& late) const;
  // The members that have not begun this collective and are not excluded.
  std::vector<int> LateMembers(bool only_here) const;
  // PeerLost if one of these will never begin it; pending if the session continues without it.
  Status CheckPeers(const std::vector<int>& late);
  // PeerLost if a node whose contribution is missing cannot send it any more.
  Status CheckNodes();
  Status CheckOwnLeader();
  bool spans_nodes() const { return exchange_ != nullptr; }
  bool IsLeader() const;
  // The leader's part: pending at that instant, ok when the collective is complete.
  Status ExchangeAsLeader(Instant until);
  // Names the late ranks and the nodes that do not answer. False while other nodes are asked.
  // `first` is the first late rank, or -1.
  bool FindLate(std::string* names, int* first);
  // A loss is reported only after messages of the lost rank have had time to arrive.
  Status ReportLostLater(int rank, const std::string& text);
  std::string WhileWaiting() const;

  const int index_;
  std::vector<int> ranks_;
  const Membership* members_;
  const NodeMemory* memory_;
  const PeerStatus* peers_;
  SessionState* state_;
  ControlChannel* channel_;
  size_t ranks_here_ = 0;                     // on this node
  std::unique_ptr<LeaderExchange> exchange_;  // unless all are
  NodeControl::GroupWords* words_;
  uint64_t sequence_ = 0;  // of the latest collective that this rank has begun
  Instant began_{};
  bool was_aborted_ = false;  // before this rank began
  std::optional<LateInquiry> inquiry_;
  std::optional<Instant> loss_noticed_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_GROUP_GROUP_H_
