// Negotiation: the beginning of a save or a load. Every rank sends its request, which must be the
// same on all ranks, and the list of its tables. Each rank releases tables at its own time, so the
// call covers the tables that all ranks have.
#ifndef MULTIVERSO_SESSION_NEGOTIATION_H_
#define MULTIVERSO_SESSION_NEGOTIATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "group/group.h"
#include "table/table.h"

namespace multiverso {

// Must be the same on all ranks.
struct CheckpointRequest {
  std::string folder;
  int64_t step = -1;   // of a save; -1 for the last step plus 1
  int64_t keep = 0;    // of a save: checkpoints to keep; 0 for all
  bool flag = false;   // a save in the background; a load of what may be missing
  int64_t table = -1;  // the number of the only table, or -1 for all
};

using Tables = std::vector<std::shared_ptr<Table>>;

// `tables` are those of this rank, out of `num_created` in the session so far. Returns the tables
// that the call covers, in the order of their creation. MismatchError if the requests differ.
Result<Tables> Negotiate(RankContext* context, CollectiveKind kind,
                         const CheckpointRequest& request, Tables tables, int64_t num_created,
                         const WaitLimit& limit);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_NEGOTIATION_H_
