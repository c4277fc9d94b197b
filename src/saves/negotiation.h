// Negotiation: how the ranks agree on a save, a load or a publication. Every rank sends its
// request, which must be the same on all ranks, and a bit for each table: whether the rank still
// has it. Each rank releases tables at its own time, so the call covers only the tables that all
// ranks have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "calls/table.h"

namespace multiverso {

// The arguments of a save, a load or a publication, which must be the same on all ranks.
struct AgreedCall {
  std::string folder;
  int64_t step = -1;           // step of a save; -1 for the last step plus 1
  int64_t keep = 0;            // number of checkpoints that a save keeps; 0 for all
  bool in_background = false;  // whether a save returns before the files are complete
  bool incremental = false;    // whether a save writes only what has changed, if it can
  bool missing_ok = false;     // whether a load may find no checkpoint
  int64_t table = -1;          // the number of the only table, or -1 for all
};

using Tables = std::vector<std::shared_ptr<Table>>;

// Returns the tables that the call covers, in the order of their creation, or MismatchError if the
// requests differ. `tables` are this rank's tables, of `num_created` tables created so far.
Result<Tables> Negotiate(RankContext* context, CollectiveKind kind, const AgreedCall& request,
                         Tables tables, int64_t num_created, const WaitLimit& limit);

}  // namespace multiverso
