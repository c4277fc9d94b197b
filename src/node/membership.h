// Membership: the ranks that take part in a session, with their roles and nodes, as they describe
// themselves when the session opens. It stays as it is when ranks are lost (PeerStatus).
//
// In an elastic session, on one node, further ranks join later. Every rank is a worker, and its
// number is never given to another rank. Memory is laid out for `capacity` ranks, of which the
// first `size` have joined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/supported.h"
#include "multiverso/constants.h"
#include "node/agreed_options.h"
#include "node/joined_ranks.h"

namespace multiverso {

// The numbers are those of the C API (MV_ROLE_ALL, ...).
enum class Role : int32_t {
  kAll = MV_ROLE_ALL,
  kWorker = MV_ROLE_WORKER,
  kServer = MV_ROLE_SERVER
};

// The description of a joining rank. It is sent to all ranks, which is cheap because the ranks of a
// node send nearly the same (StartupTransport).
struct Hello {
  char version[32] = {};
  int32_t abi = 0;
  int32_t role = 0;      // a Role
  uint64_t session = 0;  // from rank 0: a random number that identifies the session
  int64_t pid = 0;       // from rank 0
  AgreedOptions options;
  char host[64] = {};            // for messages
  char memory_domain[128] = {};  // ranks of one domain can map each other's memory
};

// Fills in `host` and `memory_domain` for this process. On Linux, the domain names the kernel, the
// process-id namespace and the user, since /proc/<pid>/fd leads to another rank's memory only if
// all three are the same. With MULTIVERSO_RANKS_PER_NODE=k, every k consecutive ranks form a node,
// so that one machine can simulate several nodes. Returns ValueError unless k is at least 1.
Status DescribeThisPlace(Hello* hello, int rank);

// What a rank that joins an elastic session needs to know of it (NodeControl).
struct ElasticSession {
  std::string version;
  AgreedOptions options;
  uint64_t session = 0;
  std::string host;
  int initial_size = 0;
  const JoinedRanks* joined = nullptr;  // outlives the membership
};

class Membership {
 public:
  // The most ranks that can ever join an elastic session.
  static constexpr int kMaxElasticRanks = 4096;

  // Takes the Hello of every rank, in rank order, and this rank. Returns MismatchError if the ranks
  // differ in version or in options other than the role, and ValueError without worker or server.
  static Result<Membership> FromHellos(const std::vector<std::string>& hellos, int rank);
  // Returns the membership of a rank that joins an elastic session.
  static Membership OfJoiner(const ElasticSession& session, int rank);
  // Counts the ranks of an elastic session from now on by those, which outlive the object.
  void Follow(const JoinedRanks* joined) { joined_ = joined; }

  bool is_elastic() const { return options_.is_elastic; }
  // Returns the number of ranks with which the session was opened.
  int initial_size() const { return initial_size_; }
  // Returns the number of ranks that may ever take part, for which memory is laid out.
  int capacity() const { return static_cast<int>(roles_.size()); }
  int rank() const { return rank_; }
  // Returns the number of ranks that have joined so far, including those that were lost.
  int size() const {
    if (!is_elastic()) return capacity();
    const int joined = joined_ == nullptr ? 0 : joined_->count();
    return std::max(joined, initial_size_);
  }
  int worker_id() const { return worker_id(rank_); }
  int worker_id(int rank) const { return worker_ids_[static_cast<size_t>(rank)]; }
  int server_id() const { return server_ids_[static_cast<size_t>(rank_)]; }
  int num_workers() const { return is_elastic() ? size() : num_workers_; }
  // Returns the most workers that may ever take part, for which memory is laid out.
  int most_workers() const { return is_elastic() ? capacity() : num_workers_; }
  int num_servers() const { return num_servers_; }
  int master_rank() const { return master_rank_; }
  bool is_worker() const { return is_worker(rank_); }
  bool is_worker(int rank) const { return worker_ids_[static_cast<size_t>(rank)] >= 0; }
  bool is_server(int rank) const { return server_ids_[static_cast<size_t>(rank)] >= 0; }

  int node() const { return nodes_[static_cast<size_t>(rank_)]; }
  int node_of(int rank) const { return nodes_[static_cast<size_t>(rank)]; }
  bool is_local(int rank) const { return node_of(rank) == node(); }
  int num_nodes() const { return num_nodes_; }
  const std::string& version() const { return version_; }
  // Returns the options on which the ranks agree. An elastic session always has a name.
  const AgreedOptions& options() const { return options_; }
  // Returns the name by which readers find the session, or an empty text if it has none.
  std::string name() const { return options_.name; }
  // Returns what the session uses besides its mode, for CheckSupported.
  FeatureSet features() const;
  // Returns a number that no other session has.
  uint64_t session() const { return session_; }
  std::chrono::milliseconds peer_timeout() const { return options_.peer_timeout; }
  // Returns whether the session continues without lost ranks. Its ranks are then on one node.
  bool survives_losses() const { return options_.on_loss == OnLoss::kContinue; }
  bool spans_nodes() const { return num_nodes_ > 1; }
  // Return the ranks of this rank's node, in order (those of an elastic session also if they have
  // not joined yet), and this rank's index among them.
  const std::vector<int>& node_ranks() const { return ranks_of(node()); }
  int local_rank() const { return local_rank_; }
  int num_ranks_here() const {
    return is_elastic() ? size() : static_cast<int>(node_ranks().size());
  }
  // Convert between the local rank and the session's rank of a rank of this node.
  int rank_of(int local_rank) const { return node_ranks()[static_cast<size_t>(local_rank)]; }
  int local_rank_of(int rank) const;
  // Returns the ranks of that node, in order.
  const std::vector<int>& ranks_of(int node) const {
    return ranks_of_nodes_[static_cast<size_t>(node)];
  }
  // Returns the ranks of that node that receive messages for it (ControlChannel, ShardService), in
  // order: the servers, or its first rank if it has no server.
  std::vector<int> service_ranks(int node) const;
  // Returns the rank that acts for that node in rounds and clocks: its first worker, or its first
  // rank if it has none. It may differ from the leader in collectives (LeaderExchange).
  int leader_of(int node) const;
  bool is_leader() const { return leader_of(node()) == rank_; }
  int num_workers_here() const;
  const std::string& host_of(int rank) const {
    return node_hosts_[static_cast<size_t>(node_of(rank))];
  }
  // Return names for messages: "rank 3 on b" (without the host if there is one node), and "node 1
  // (ranks 2 and 3 on b)".
  std::string NameRank(int rank) const;
  std::string NameNode(int node) const;

 private:
  void AssignRoles();
  // Makes room for all ranks that may join.
  void MakeElastic();

  int rank_ = 0;
  AgreedOptions options_;
  int initial_size_ = 0;
  const JoinedRanks* joined_ = nullptr;
  std::string version_;  // of the library
  uint64_t session_ = 0;
  std::vector<Role> roles_;
  std::vector<int> worker_ids_;  // by rank; -1 if the rank is not a worker
  std::vector<int> server_ids_;  // by rank; -1 if the rank is not a server
  std::vector<int> nodes_;       // by rank
  std::vector<std::vector<int>> ranks_of_nodes_;
  std::vector<std::string> node_hosts_;
  int num_workers_ = 0;
  int num_servers_ = 0;
  int num_nodes_ = 0;
  int master_rank_ = 0;
  int local_rank_ = 0;
};

}  // namespace multiverso
