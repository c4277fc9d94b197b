// Finds a table that the other ranks of an elastic session created before this rank joined.
#ifndef MULTIVERSO_SESSION_FIND_TABLE_H_
#define MULTIVERSO_SESSION_FIND_TABLE_H_

#include <cstdint>

#include "base/status.h"
#include "group/rank_context.h"
#include "memory/segment.h"

namespace multiverso {

// Maps the table with that number, which is among the open files of the other ranks. Returns
// StateError if no rank has the table any more.
Result<Segment> FindTable(const RankContext& context, int64_t id);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_FIND_TABLE_H_
