// MakeConsistency: makes a table's Consistency object for the session's mode. Its state is in the
// table's shared memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "consistency/consistency.h"
#include "consistency/staging.h"
#include "group/rank_context.h"
#include "shard/shard.h"

namespace multiverso {

// Returns the bytes of this node's shared memory for a table of that shape, or kMemory if that
// memory cannot be addressed.
Result<int64_t> ConsistencyBytes(const ModeOptions& options, const StagedShape& shape,
                                 const Membership& members);
// `shape` is that of the whole table, and `first_row` the first row of `shard`. `memory` is
// zero-filled and has ConsistencyBytes().
std::unique_ptr<Consistency> MakeConsistency(const ModeOptions& options, const StagedShape& shape,
                                             int64_t first_row, char* memory, Shard* shard,
                                             RankContext* context, const std::string& table_name);

}  // namespace multiverso
