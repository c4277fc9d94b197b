// NodeService: the thread with which a rank serves other nodes, in a session that spans nodes.
#ifndef MULTIVERSO_SESSION_NODE_SERVICE_H_
#define MULTIVERSO_SESSION_NODE_SERVICE_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "table/shard_service.h"
#include "transport/node_group.h"

namespace multiverso {

// On ranks that serve (Membership::service_ranks) a thread takes in requests and news. It polls,
// since MPI offers nothing better: eagerly while there is something to do, then ever more rarely.
// MULTIVERSO_SERVICE_MAX_SLEEP_MS is the longest it sleeps, and so the latest that the first
// request after a long silence is seen. Other ranks have no thread.
class NodeService {
 public:
  // `group` outlives it. ValueError if the variable is no number above 0.
  static Result<std::unique_ptr<NodeService>> Start(NodeGroup* group);
  // Ends the thread, and what it has under way.
  ~NodeService();

  ShardService* shards() { return &shards_; }

 private:
  explicit NodeService(NodeGroup* group) : group_(group), shards_(group) {}

  void Serve(std::chrono::microseconds longest_sleep);

  NodeGroup* group_;
  ShardService shards_;
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_NODE_SERVICE_H_
