// MakeConsistency: makes a table's Consistency object, by the session's mode, and states how much
// shared memory it needs.
#ifndef MULTIVERSO_CONSISTENCY_MAKE_CONSISTENCY_H_
#define MULTIVERSO_CONSISTENCY_MAKE_CONSISTENCY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "consistency/consistency.h"
#include "consistency/staging.h"
#include "group/rank_context.h"
#include "shard/shard.h"

namespace multiverso {

// Returns the bytes of shared memory for a table of that shape on a node with `workers_here`
// of the `workers`, or kMemory if that memory cannot be addressed.
Result<int64_t> ConsistencyBytes(const ModeOptions& options, const StagedShape& shape, int workers,
                                 int workers_here);
// Makes this rank's object over ConsistencyBytes() of shared memory at `base`, which is zero-filled
// at first. A rank that is not a worker gets AsyncMode.
std::unique_ptr<Consistency> MakeConsistency(const ModeOptions& options, const StagedShape& shape,
                                             char* base, Shard* shard, RankContext* context,
                                             const std::string& table_name);

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_MAKE_CONSISTENCY_H_
