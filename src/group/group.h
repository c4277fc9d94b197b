// Group: a set of ranks of the session, with an allgather in two phases (begin and wait). Every
// collective call is built from such allgathers.
//
// Each rank writes its payload into its own slot in shared memory, increments a common count, and
// sleeps on a word. The last rank to begin changes the word and wakes the others; then each rank
// reads the payloads of the others. So on one node a collective needs neither a server nor
// messages. A waiting rank checks periodically whether the others are alive. The wait ends with an
// error that names a rank if that rank aborted the session, or was lost before it began.
//
// In a session that survives losses, the other members stop waiting for a lost rank instead. A lost
// rank begins no further collective, so all others agree on the participants.
//
// All remaining ranks must leave a collective call with the same result, or a repetition by some
// would meet the next call of the others. So a rank returns an error only if all ranks find the
// same one: from payloads, from the participants, or as a failure that a rank sent (BeginFailure).
// No step that may fail on one rank alone follows the last allgather of a call.
//
// If the group spans nodes, the last rank of each node to begin wakes the leader of the node. The
// leader exchanges the payloads with the other nodes (LeaderExchange) and then wakes the ranks of
// its node. So all ranks other than the leaders sleep on shared memory, as on a single node.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "group/control_channel.h"
#include "group/late_inquiry.h"
#include "group/leader_exchange.h"
#include "group/peer_watch.h"
#include "group/session_state.h"
#include "liveness/peer_status.h"
#include "node/membership.h"
#include "node/node_memory.h"

namespace multiverso {

// Used by one thread at a time, by members only.
class Group {
 public:
  // Makes group number `index`, of these ranks of the session. The pointers outlive the group;
  // `channel` is null in a session of one node.
  Group(int index, std::vector<int> ranks, const Membership* members, const NodeMemory* memory,
        const PeerStatus* peers, SessionState* state, ControlChannel* channel);

  const std::vector<int>& members() const { return ranks_; }
  // Makes the first `size` ranks of an elastic session the members, which have made `sequence`
  // collectives (CollectiveCall).
  void StartCall(int size, uint64_t sequence);

  // Begins the next collective with a payload of up to ExchangeSlot::kMaxBytes; does not wait.
  void BeginAllgather(CollectiveKind kind, const void* data = nullptr, int64_t bytes = 0);
  // Begins the next collective to say that this rank has failed in the call.
  void BeginFailure(CollectiveKind kind, const Status& failure);
  // Makes the next BeginAllgather a BeginFailure, if `failure` is one: this rank has failed before
  // it knew in which collective the others wait for it. Ok revokes this.
  void FailNext(const Status& failure) { next_failure_ = failure; }
  // Waits for the other members. If some of them ask whether all leave (AsksAboutLeaving), and this
  // rank makes another call, it begins its collective again, which they will join later. If one of
  // them asks because its program has failed, it will not, and the result is aborted.
  // Returns the first failure in rank order if members have failed, and a mismatch if the members
  // began the collective with different kinds; the collective is complete even then. At the
  // deadline, returns a timeout and aborts the session, since ranks that begin the collective later
  // would wait for this rank. The leaders exchange the attachment, if there is one, with the
  // payloads.
  Status Wait(const WaitLimit& limit, Attachment* attachment = nullptr);
  // Begins the next collective, with a failure if `mine` is one, and waits.
  Status Allgather(CollectiveKind kind, const Status& mine, const WaitLimit& limit,
                   const void* data = nullptr, int64_t bytes = 0);
  // Makes an allgather to which `ranks` have to come, because each of them has done something
  // before that the call needs. Returns PeerLost if one did not come: "rank 1 died" and
  // `consequence`.
  Status Agree(CollectiveKind kind, const Status& mine, const std::vector<int>& ranks,
               const std::string& consequence, const WaitLimit& limit, const void* data = nullptr,
               int64_t bytes = 0);
  // Returns whether the last collective is complete. An error that Wait has returned is then the
  // result of all participants.
  bool IsCompleted() const;
  // Returns the ranks that took part in the last collective: all members that were not lost before
  // they began it. Every participant gets the same ranks.
  std::vector<int> participants() const;
  // Returns those on this node.
  std::vector<int> participants_here() const;
  // Returns PeerLost, to all participants of the last collective, if one of `ranks` is not among
  // them. The text of the error is the rank's end and `consequence`: "rank 1 died before ...".
  Status CheckTookPart(const std::vector<int>& ranks, const std::string& consequence) const;
  // Returns the number of the last collective, which is the same on all participants.
  uint64_t sequence() const { return sequence_; }
  // Returns how many collectives this rank has begun, without those that ask whether all leave, and
  // those that Wait has begun again: as many as every member that has made as many calls.
  uint64_t calls() const { return calls_; }
  // Gives up the last collective, or what the ranks do after it, for lack of that rank, and with it
  // all later collectives. Returns PeerLost.
  Status GiveUp(int rank);
  // Returns PeerLost if this rank has given up a collective for lack of a rank. A caller that
  // writes what other members read in a collective asks before it writes, since they may still read
  // what it wrote for the one that it has given up.
  Status CheckCanBegin(CollectiveKind kind) const;
  // Returns the payload of a participant in the last collective. The caller reads it before this
  // rank begins its next collective, since the participant may then overwrite the slot.
  const ExchangeSlot& payload(int rank) const;
  // Returns a mismatch about payloads, or that the others have excluded this rank: then they went
  // on, and may have overwritten the payloads while it compared them.
  Status Mismatch(const std::string& text) const;

 private:
  void CountCall(CollectiveKind kind) { calls_ += AsksAboutLeaving(kind) ? 0 : 1; }
  void Begin(CollectiveKind kind, const void* data, int64_t bytes);
  // Does what Wait does, for a rank that the others have not excluded.
  Status AwaitResult(const WaitLimit& limit, Attachment* attachment);
  // Waits until the collective is complete.
  Status AwaitCompletion(const WaitLimit& limit, Attachment* attachment);
  // Returns whether that rank has begun the last collective here.
  bool HasBegun(int rank) const;
  void Announce(std::atomic<uint32_t>* word, std::atomic<uint32_t>* sleepers) const;
  CollectiveKind OwnKind() const { return WithoutFailure(kind_); }
  // Returns a participant that asks because its program has failed, or -1.
  int RankThatFailed() const;
  // Returns the result of the complete collective.
  Status AgreedResult() const;
  // Returns a mismatch, and aborts the session with it, if one of the `late` ranks waits for this
  // rank in a collective of another group.
  Status CheckOtherGroups(const std::vector<int>& late) const;
  // Returns the members that have neither begun this collective nor been excluded.
  std::vector<int> LateMembers(bool only_here) const;
  // Returns an error if one of the `late` ranks will never begin this collective, or pending if the
  // session continues without that rank. In a group that spans nodes, checks the leaders as well.
  Status CheckPeers(const std::vector<int>& late);
  // Returns PeerLostError, in a group that spans nodes, if any member is lost, since what the
  // others sent may come through its node, or through one that has given up the collective because
  // of it.
  Status CheckLosses();
  // Returns whether all members made the same call with the same payload in this collective, as far
  // as the leader of a group that spans nodes has found.
  bool HasCommonPayload() const {
    return group_state_->common_of[sequence_ % 2].load(std::memory_order_acquire) == sequence_;
  }
  bool spans_nodes() const { return exchange_ != nullptr; }
  bool IsLeader() const;
  // Does the leader's part of the collective. Returns ok when the collective is complete, or
  // pending if it is not complete at `until`.
  Status ExchangeAsLeader(Instant until, const WaitLimit& limit, Attachment* attachment);
  // Sets *whom to the late ranks and the nodes that do not answer. Returns false while answers from
  // other nodes are outstanding.
  bool DescribeLate(PeerWatch::Late* whom);
  // Returns ok while the last messages of the lost rank may still arrive, since they may complete
  // the collective, and then PeerLost.
  Status CheckLost(int rank);

  const int index_;
  std::vector<int> ranks_;
  const Membership* members_;
  const NodeMemory* memory_;
  const PeerStatus* peers_;
  SessionState* state_;
  ControlChannel* channel_;
  std::vector<int> ranks_here_;               // those on this node
  std::unique_ptr<LeaderExchange> exchange_;  // null if all members are on this node
  NodeControl::GroupState* group_state_;
  uint64_t sequence_ = 0;  // of the latest collective that this rank has begun
  uint64_t calls_ = 0;
  Status next_failure_;
  PeerWatch watch_;
  CollectiveKind kind_{};     // of this rank's latest call, marked if it has failed
  bool was_refused_ = false;  // it could not begin: see Begin
  int given_up_for_ = -1;     // the lost rank for lack of which this rank has given up a collective
  std::optional<LateInquiry> inquiry_;
};

}  // namespace multiverso
