// Finds the tables that the other ranks of an elastic session created before this rank joined.
#ifndef MULTIVERSO_SESSION_FIND_TABLES_H_
#define MULTIVERSO_SESSION_FIND_TABLES_H_

#include <cstdint>
#include <map>

#include "group/rank_context.h"
#include "memory/segment.h"

namespace multiverso {

// Maps the tables of the session, by their numbers, which are among the open files of the other
// ranks.
std::map<int64_t, Segment> FindTables(const RankContext& context);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_FIND_TABLES_H_
