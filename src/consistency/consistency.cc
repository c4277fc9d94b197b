#include "consistency/consistency.h"

#include "base/text.h"
#include "consistency/replica_rounds.h"
#include "consistency/staleness_bound.h"
#include "consistency/sync_rounds.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

Result<int64_t> Consistency::BytesFor(const ModeOptions& options, const StagedShape& shape,
                                      int workers, int workers_here) {
  switch (options.mode) {
    case Mode::kAsync:
      return int64_t{0};
    case Mode::kStale:
      return WorkerClocks::BytesFor(workers);
    case Mode::kSync:
      break;
  }
  int64_t bytes = 0;
  const bool fits = workers_here == workers
                        ? SyncRounds::BytesFor(shape, workers, &bytes)
                        : ReplicaMemory::BytesFor(shape, workers, workers_here, &bytes);
  if (fits) return bytes;
  return Status(Code::kMemory, StrCat("sync mode cannot address the deltas of ", workers_here,
                                      " workers of ", shape.layout.bytes(), " bytes each"));
}

Status Consistency::Exchange(const TensorList& /*tensors*/, void* /*last*/, Progress* /*progress*/,
                             const WaitLimit& /*limit*/) {
  return Status(Code::kInternal, "an exchange in place in a mode without it");
}

std::unique_ptr<Consistency> Consistency::Make(const ModeOptions& options, const StagedShape& shape,
                                               char* base, Shard* shard, RankContext* group,
                                               const std::string& table_name, bool is_worker) {
  if (options.mode == Mode::kAsync || !is_worker) return nullptr;
  WorkerClocks clocks(base, group, table_name);
  if (options.mode == Mode::kSync) {
    const Membership& members = group->members();
    if (members.num_workers_here() == members.num_workers()) {
      return std::make_unique<SyncRounds>(shape, base, shard, std::move(clocks));
    }
    ReplicaMemory memory(shape, base, clocks);
    return std::make_unique<ReplicaRounds>(shape, std::move(memory), shard, std::move(clocks),
                                           *group);
  }
  return std::make_unique<StalenessBound>(static_cast<uint64_t>(options.staleness), shard,
                                          std::move(clocks));
}

}  // namespace multiverso
