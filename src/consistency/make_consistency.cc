#include "consistency/make_consistency.h"

#include "base/text.h"
#include "consistency/replica_rounds.h"
#include "consistency/staleness_bound.h"
#include "consistency/sync_rounds.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

Result<int64_t> ConsistencyBytes(const ModeOptions& options, const StagedShape& shape, int workers,
                                 int workers_here) {
  if (options.mode == Mode::kAsync) return int64_t{0};
  if (options.mode == Mode::kStale) return WorkerClocks::BytesFor(workers);
  int64_t bytes = 0;
  const bool fits = workers_here == workers
                        ? SyncRounds::BytesFor(shape, workers, &bytes)
                        : ReplicaMemory::BytesFor(shape, workers, workers_here, &bytes);
  if (fits) return bytes;
  return Status(Code::kMemory, StrCat("sync mode cannot address deltas of ", shape.layout.bytes(),
                                      " bytes from each of ", workers_here, " workers"));
}

std::unique_ptr<Consistency> MakeConsistency(const ModeOptions& options, const StagedShape& shape,
                                             char* memory, Shard* shard, RankContext* context,
                                             const std::string& table_name) {
  const Membership& members = context->members();
  if (options.mode == Mode::kAsync || !members.is_worker()) {
    return std::make_unique<AsyncMode>(shard);
  }
  WorkerClocks clocks(memory, context, table_name);
  if (options.mode == Mode::kStale) {
    return std::make_unique<StalenessBound>(static_cast<uint64_t>(options.staleness), shard,
                                            std::move(clocks));
  }
  // Workers that share one node sum. Otherwise each node has a replica, and the leaders sum.
  if (members.num_workers_here() == members.num_workers()) {
    return std::make_unique<SyncRounds>(shape, memory, shard, std::move(clocks));
  }
  ReplicaMemory replica_memory(shape, memory, clocks);
  return std::make_unique<ReplicaRounds>(shape, std::move(replica_memory), shard, std::move(clocks),
                                         *context);
}

}  // namespace multiverso
