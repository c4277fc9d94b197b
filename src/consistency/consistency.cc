#include "consistency/consistency.h"

#include "base/text.h"
#include "consistency/staleness_bound.h"
#include "consistency/sync_rounds.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

Result<int64_t> Consistency::BytesFor(const ModeOptions& options, const StagedShape& shape,
                                      int workers) {
  switch (options.mode) {
    case Mode::kAsync:
      return int64_t{0};
    case Mode::kStale:
      return WorkerClocks::BytesFor(workers);
    case Mode::kSync:
      break;
  }
  int64_t bytes = 0;
  if (SyncRounds::BytesFor(shape, workers, &bytes)) return bytes;
  return Status(Code::kMemory, StrCat("sync mode cannot address the deltas of ", workers,
                                      " workers of ", shape.layout.bytes(), " bytes each"));
}

std::unique_ptr<Consistency> Consistency::Make(const ModeOptions& options, const StagedShape& shape,
                                               char* base, Shard* shard, NodeGroup* group,
                                               const std::string& table_name, bool is_worker) {
  if (options.mode == Mode::kAsync || !is_worker) return nullptr;
  WorkerClocks clocks(base, group, table_name);
  if (options.mode == Mode::kSync) {
    return std::make_unique<SyncRounds>(shape, base, shard, std::move(clocks));
  }
  return std::make_unique<StalenessBound>(static_cast<uint64_t>(options.staleness), shard,
                                          std::move(clocks));
}

}  // namespace multiverso
