// DistributedCall: a call on a table whose rows lie on several nodes.
//
// The calling thread operates directly on the rows of its own node, which lie in shared memory. At
// the same time, the thread sends requests for the other rows to one server of each node that has
// some, whose service threads execute the requests (ShardService). The call returns after every
// server has answered, so every later get sees the call's adds.
#pragma once

#include <memory>
#include <vector>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/status.h"
#include "group/peer_watch.h"
#include "group/rank_context.h"
#include "remote/chunk_source.h"
#include "remote/server_pipeline.h"
#include "remote/shard_service.h"
#include "table/table_shard.h"
#include "transport/deferred_failure.h"

namespace multiverso {

class DistributedCall {
 public:
  // The arguments have been checked and outlive the call. A request for the whole table runs only
  // on `rows`, if they are given.
  DistributedCall(TableShard* table_shard, ShardService* service, RankContext* rank_context,
                  const Request& request, std::vector<RowRange> rows = {});
  ~DistributedCall();
  DistributedCall(const DistributedCall&) = delete;
  DistributedCall& operator=(const DistributedCall&) = delete;

  // Runs the call; called once. After an interrupt, only the requests that were sent are applied.
  Status Run(const WaitLimit& limit);

 private:
  void OpenPipelines();
  // Appends each position in the row ids to the vector of the node that has the row.
  void SplitRowIds(std::vector<std::vector<int64_t>>* positions) const;
  // Returns the parts of a range on which the request runs.
  std::vector<RowRange> PartsOf(RowRange range) const;
  void AddPipeline(int server, ChunkSource source, RowRange rows);
  Status RunToAnswers(const WaitLimit& limit);
  // Runs one chunk of this node's rows. Returns ok when all have run.
  Status StepLocalRows(const WaitLimit& limit, bool* progressed);
  Status StepPipelines(bool* progressed);
  // Returns PeerLostError if a server that has not answered is lost.
  Status CheckServers();
  // Returns an error if the answers wait for a round that a loss may keep from ending, or a worker
  // that waits in another call.
  Status CheckRound();
  // Returns the servers that have not answered yet.
  std::vector<int> UnansweredServers() const;
  // Returns the servers that have not answered.
  PeerWatch::Late Unanswered(const std::string& call) const;
  // Completes or abandons the messages in flight, so that the caller may reuse its memory. Waits
  // up to peer_timeout for an answer that is arriving there, which MPI cannot undo.
  void WindDown(const Status& failure);

  TableShard* table_shard_;
  ShardService* service_;
  RankContext* rank_context_;
  Request request_;
  std::vector<RowRange> rows_;
  Messenger* messenger_;
  CallNumber call_;
  PeerWatch watch_;
  Backoff backoff_;
  Instant last_check_;
  std::vector<ServerPipeline> pipelines_;
  std::vector<bool> answered_;
  DeferredFailure failure_;
  // The chunks of this node's rows, and the chunk that has begun; null when all have run.
  std::unique_ptr<ChunkSource> local_source_;
  Chunk local_chunk_;
  bool has_local_chunk_ = false;
  Progress local_progress_;
  MessageCounts counts_;
};

}  // namespace multiverso
