// DistributedCall: a call on a table whose rows lie on several nodes.
//
// The calling thread operates directly on the rows of its own node, which lie in shared memory. At
// the same time, the thread sends requests for the other rows to the ranks that own those rows, and
// their service threads execute the requests (ShardService). The call returns after every server
// has answered, so every later get sees the call's adds.
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

  // Runs the call; called once. After an interrupt, only the requests that were sent are applied.
  Status Run(const WaitLimit& limit);

 private:
  void OpenPipelines();
  void SplitRows(std::vector<std::vector<int64_t>>* by_owner) const;
  // Returns the rows to request from the server at index `place` of Partition::servers(). The rows
  // are the server's own, except for an array whose updater counts steps: its boundaries between
  // servers of a node move to whole stripes, since a stripe is updated in one piece.
  RowRange RowsAskedOf(size_t place) const;
  void AddPipeline(int server, ChunkSource source, RowRange rows);
  Status RunToAnswers(const WaitLimit& limit);
  // Runs one chunk of this node's rows.
  Status StepHere(const WaitLimit& limit, bool* progressed);
  Status StepPipelines(bool* progressed);
  // Replaces lost servers. Returns an error if a server that owes an answer cannot be replaced.
  Status CheckServers();
  // Redirects the pipeline to another rank of the server's node, in a session that continues
  // without lost ranks. Returns pending if that rank is not alive either.
  Status Replace(ServerPipeline* pipeline);
  bool survives_losses() const { return rank_context_->members().survives_losses(); }
  // Names the servers that have not answered.
  Status TimeoutStatus() const;
  // Completes or abandons the messages in flight, so that the caller may reuse its memory.
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
  // The chunks of this node's rows; null when all have run.
  std::unique_ptr<ChunkSource> source_;
  Chunk chunk_;
  bool has_chunk_ = false;
  Progress progress_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_DISTRIBUTED_CALL_H_
