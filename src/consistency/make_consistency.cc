#include "consistency/make_consistency.h"

#include <utility>

#include "base/text.h"
#include "consistency/local_sum.h"
#include "consistency/spanning_sum.h"
#include "consistency/staleness_bound.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

Result<int64_t> ConsistencyBytes(const ModeOptions& options, const StagedShape& shape,
                                 const Membership& members) {
  if (options.mode == Mode::kAsync) return int64_t{0};
  if (options.mode == Mode::kStale) return WorkerClocks::BytesFor(members.most_workers());
  int64_t bytes = 0;
  if (RoundMemory::BytesFor(shape, members, &bytes)) return bytes;
  return Status(Code::kMemory,
                StrCat("sync mode cannot address deltas of ", shape.layout.bytes(),
                       " bytes from each of ", members.num_workers_here(), " workers"));
}

std::unique_ptr<Consistency> MakeConsistency(const ModeOptions& options, const StagedShape& shape,
                                             int64_t first_row, char* memory, Shard* shard,
                                             RankContext* context, const std::string& table_name) {
  const Membership& members = context->members();
  // On one node, a rank that is no worker has no part in rounds.
  const bool has_part =
      members.is_worker() || (options.mode == Mode::kSync && members.spans_nodes());
  if (options.mode == Mode::kAsync || !has_part) return std::make_unique<AsyncMode>(shard);
  WorkerClocks clocks(memory, context, table_name);
  if (options.mode == Mode::kStale) {
    return std::make_unique<StalenessBound>(static_cast<uint64_t>(options.staleness), shard,
                                            std::move(clocks));
  }
  if (!members.spans_nodes()) {
    return std::make_unique<LocalSum>(shape, memory, shard, std::move(clocks));
  }
  return std::make_unique<SpanningSum>(shape, first_row, memory, shard, std::move(clocks), members);
}

}  // namespace multiverso
