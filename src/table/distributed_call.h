// DistributedCall: a call on a table whose rows lie on several nodes.
//
// The calling thread operates directly on the rows of its own node, which lie in shared memory. At
// the same time, it sends requests for the other rows to the ranks that own them, whose service
// threads execute them (ShardService). The call returns after every server has answered, so every
// later get sees its adds.
#ifndef MULTIVERSO_TABLE_DISTRIBUTED_CALL_H_
#define MULTIVERSO_TABLE_DISTRIBUTED_CALL_H_

#include <memory>
#include <optional>
#include <vector>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/status.h"
#include "group/rank_context.h"
#include "table/chunk_source.h"
#include "table/server_pipeline.h"
#include "table/shard_service.h"
#include "table/table_shard.h"
#include "transport/deferred_failure.h"

namespace multiverso {

class DistributedCall {
 public:
  // The arguments have been checked and outlive the call.
  DistributedCall(TableShard* here, ShardService* service, RankContext* rank_context,
                  const Request& request);
  ~DistributedCall();
  DistributedCall(const DistributedCall&) = delete;
  DistributedCall& operator=(const DistributedCall&) = delete;

  // Call this once. After an interrupt, the requests that were sent are applied and the others are
  // not.
  Status Run(const WaitLimit& limit);

 private:
  void OpenPipelines();
  void SplitRows(std::vector<std::vector<int64_t>>* by_owner) const;
  // Returns the rows to request from the server at index `place` of Partition::servers(). These are
  // its own rows, except for an array whose updater counts steps: then the boundaries between the
  // servers of a node move to whole stripes, since a stripe is updated in one piece.
  RowRange RowsAskedOf(size_t place) const;
  void AddPipeline(int server, ChunkSource source, RowRange rows);
  Status RunToAnswers(const WaitLimit& limit);
  // Runs one chunk of this node's rows.
  Status StepHere(const WaitLimit& limit, bool* progressed);
  Status StepPipelines(bool* progressed);
  // Fails if a server that has not answered no longer can.
  Status CheckServers();
  // Lets another rank of the server's node take over, in a session that continues without lost
  // ranks.
  Status Replace(ServerPipeline* pipeline);
  bool survives_losses() const { return rank_context_->members().survives_losses(); }
  Status Timeout() const;
  // Completes the messages in flight, so that the caller gets the memory back.
  void WindDown(const Status& failure);

  TableShard* here_;
  ShardService* service_;
  RankContext* rank_context_;
  Request request_;
  Messenger* messenger_;
  int tag_;
  Instant began_;
  Backoff backoff_;
  Instant checked_;
  std::vector<ServerPipeline> pipelines_;
  std::vector<bool> answered_;
  DeferredFailure failure_;
  std::optional<Instant> stalled_at_;
  // Runs the part of this node's rows.
  std::unique_ptr<ChunkSource> source_;
  Chunk chunk_;
  bool has_chunk_ = false;
  Progress progress_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_DISTRIBUTED_CALL_H_
