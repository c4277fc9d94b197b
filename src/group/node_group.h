// NodeGroup: the ranks of one node, as one of them sees them: how they number and meet each other,
// what they share in their control segment, and how one of them leaves the others or gives the
// session up. What is known of each rank is PeerStatus'.
//
// In a session that spans nodes the control segment of each node has a slot for every rank of the
// session, and what happens on the other nodes is written there by those who bring the news. So
// whoever waits looks at memory, wherever those are that it waits for.
#ifndef MULTIVERSO_GROUP_NODE_GROUP_H_
#define MULTIVERSO_GROUP_NODE_GROUP_H_

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "group/control_channel.h"
#include "group/group.h"
#include "liveness/failure_detector.h"
#include "liveness/peer_connections.h"
#include "liveness/peer_status.h"
#include "memory/futex.h"
#include "memory/segment.h"
#include "node/control_segment.h"
#include "node/membership.h"
#include "transport/messenger.h"

namespace multiverso {

// Thread-safe but for its circles.
class NodeGroup final {
 public:
  // Takes this rank's place in the control segment of its node. The messenger is for sessions that
  // span nodes, and null in others; so are the lifelines, which may be null there too.
  static Result<std::unique_ptr<NodeGroup>> Join(
      Segment control, const Membership& members, std::unique_ptr<Messenger> messenger = nullptr,
      std::unique_ptr<PeerConnections> connections = nullptr);
  // Leaves, if it has not closed.
  ~NodeGroup();

  // Of this node.
  int local_rank() const { return members_.local_rank(); }
  int size() const { return static_cast<int>(members_.node_ranks().size()); }
  int rank() const { return members_.rank(); }
  // The session's number of a rank of this node.
  int rank_of(int local_rank) const {
    return members_.node_ranks()[static_cast<size_t>(local_rank)];
  }
  // And back.
  int local_rank_of(int rank) const { return members_.local_rank_of(rank); }

  const Membership& members() const { return members_; }
  int num_nodes() const { return members_.num_nodes(); }
  bool is_local(int rank) const { return members_.is_local(rank); }
  // What is known of the ranks, and their signs of life.
  PeerStatus* peers() const { return peers_.get(); }
  FailureDetector* failure_detector() const { return failure_detector_.get(); }
  // How the ranks of this node look for what they wait for.
  const SpinPolicy& spin_policy() const { return spin_policy_; }
  // This rank speaks for its node.
  bool is_leader() const { return members_.leader_of(members_.node()) == rank(); }
  // Null in a session of one node.
  ControlChannel* control_channel() const { return control_channel_.get(); }
  // Null there too, and where there can be none.
  PeerConnections* connections() const { return connections_.get(); }

  // The circles are of all ranks of the session.
  Group* world() { return &circles_.front(); }
  // Only for workers.
  Group* workers() { return &circles_.back(); }
  // Of the workers of this node, only for them.
  Group* node_workers() { return node_workers_.get(); }
  // The name of the collective call in which that rank waits for this one, or null: it has come to
  // a meeting, of everybody or of the workers, to which this rank has not. Of ranks of other nodes
  // that is known a while later, from PeerStatus::RecordWaiting.
  const char* CollectiveAwaitedBy(int rank) const;

  // Ends every wait of the session's ranks, now and later: with AbortedError, or, where `why` is a
  // mismatch, with the same mismatch, or, where it is a timeout, with the same timeout for those
  // that are waiting already.
  void Abort(const Status& why);
  // The same by a thread of the library: this rank's caller has still to be told.
  void AbortInBackground(const Status& why);
  // The same for the ranks of this node alone: a rank of another node has done it.
  void RecordAbort(int by, const Status& why);
  bool IsAborted() const;
  // The error if a rank has done that. `was_waiting`: since before it happened.
  Status CheckAborted(bool was_waiting);
  // Whether this rank's caller has been told, or did it.
  bool AbortIsKnown() const { return abort_is_known_.load(std::memory_order_relaxed); }
  // Tells the others that this rank will not come any more.
  void Leave(const std::string& reason);
  // The orderly end, after everybody met for it.
  void Close();
  // PeerLostError about that rank in these words, after the other nodes have been told of those who
  // died on this one: whoever gets it may end the process at once.
  Status Lost(int rank, const std::string& text);
  // The others do without that rank, which gives no sign of life. It learns that when it goes on.
  Status ExcludeSilentRank(int rank, const std::string& waiting_in);
  // StateError if they have given this one up.
  Status CheckNotExcluded() const;
  // The lifeline of a rank of another node says that it has died, perhaps after its caller had been
  // told of the loss of rank `after`, which is -1 otherwise.
  void RecordDeath(int rank, const std::string& how, int after);

  // The control segment's bytes for the words of `ranks` ranks of the session, and for the scratch
  // memory of `ranks` of the node, which takes no pages before it is used.
  static int64_t ControlBytes(int ranks);
  static int64_t ScratchBytes(int ranks);
  // Memory of that rank for passing things on, readable by all: two areas to use in turn. Small
  // enough to stay in the second-level cache: at 4 MiB, sums of large arrays took 2.5 times as
  // long.
  static constexpr int64_t kScratchAreaBytes = int64_t{512} << 10;
  char* scratch(int local_rank, int area) const;

  // Wakes the service thread of this node's leader, in a session that spans nodes: there is
  // something for it to do.
  void CallLeader() const;

  // What this node has done of the requests of that rank of another, in a sequence that it has
  // given this slot.
  RequestRecord* request_record(int rank, int slot) const {
    return &control_->request_logs(members_.size())[rank].slot[slot];
  }
  // Where this rank notes what it does.
  FlightRecorder* log() const { return control_->logs(members_.size()) + rank(); }
  // Tells those who look what a table is.
  void Label(int64_t table, const std::string& name, int32_t dtype, int64_t rows,
             int64_t columns) const;
  // And which checkpoint was completed last.
  void RecordSaved(const std::string& path) const;

  NodeControl* control() const { return control_; }
  RankSlot& slot(int rank) const { return control_->slots()[static_cast<size_t>(rank)]; }

 private:
  void Introduce();
  // The caller is told that the session is over: how its process ends is its own affair then.
  void AnnounceClose() const {
    if (connections_ != nullptr) connections_->AnnounceClose();
  }
  NodeGroup(Segment control, const Membership& members, std::unique_ptr<Messenger> messenger,
            std::unique_ptr<PeerConnections> connections);

  Segment segment_;
  Membership members_;
  NodeControl* control_;
  SpinPolicy spin_policy_;
  std::unique_ptr<FailureDetector> failure_detector_;
  std::unique_ptr<PeerStatus> peers_;
  std::unique_ptr<ControlChannel> control_channel_;
  std::unique_ptr<PeerConnections> connections_;
  std::vector<Group> circles_;  // that span all nodes
  std::unique_ptr<Group> node_workers_;
  std::atomic<bool> abort_is_known_{false};
  std::atomic<bool> leaving_{false};
};

}  // namespace multiverso

#endif  // MULTIVERSO_GROUP_NODE_GROUP_H_
