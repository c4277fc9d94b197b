// NodeService: the thread in which a rank serves the ranks of other nodes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/backoff.h"
#include "base/status.h"
#include "consistency/round_service.h"
#include "group/rank_context.h"
#include "remote/shard_service.h"

namespace multiverso {

// On service ranks (Membership::service_ranks) and leaders, in a session that spans nodes, a thread
// receives requests and control messages and sums rounds. The thread polls, since MPI cannot wake a
// sleeping thread: eagerly while there is work, then more and more rarely. The ranks of a node can
// wake the leader's thread (WakeLeader). MULTIVERSO_SERVICE_MAX_SLEEP_MS is the longest sleep, and
// so the longest delay of the first request after a quiet period. Other ranks have no such thread.
class NodeService {
 public:
  // Returns ValueError if the variable is not in 1 to 1000. `context` outlives the service.
  static Result<std::unique_ptr<NodeService>> Start(RankContext* context);
  // Stops the thread. ShardService then lets the last answers leave.
  ~NodeService();

  ShardService* shards() { return &shards_; }
  RoundService* rounds() { return &rounds_; }

 private:
  explicit NodeService(RankContext* context);

  void Serve(Backoff backoff);

  RankContext* context_;
  ShardService shards_;
  RoundService rounds_;
  // The thread sleeps on bell_, the node's bell if this rank is the leader and its own otherwise.
  std::atomic<uint32_t> own_bell_{0};
  std::atomic<uint32_t> own_sleepers_{0};
  std::atomic<uint32_t>* bell_;
  std::atomic<uint32_t>* sleepers_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace multiverso
