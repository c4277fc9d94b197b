// ParamSync: keeps the tensors of a model in step with a table.
//
// A sync adds the worker's change since its last sync (current - last) to the table, and sets both
// current and last to the table's new values. If the table's updater takes gradients, the sync adds
// last - current, so that the optimizer steps in the direction in which the worker moved. If the
// updater takes positions, the sync adds current and moves current towards the table. The sync is
// a Request::Exchange, which works on stripes and chunks. In sync mode, a part of the delta
// overwrites `last`, and then the table's new values do.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "calls/table.h"
#include "memory/segment.h"
#include "numbers/tensor_list.h"
#include "shard/shard.h"

namespace multiverso {

// One thread at a time uses a ParamSync. A ParamSync does not keep its table from being released.
class ParamSync {
 public:
  // Creates a sync for tensors of `counts` elements. The tensors and the table now equal `values`.
  static Result<std::unique_ptr<ParamSync>> Make(const Table& table, const int64_t* counts,
                                                 int64_t tensors, const void* values);

  // Multiplies the deltas of the next syncs by a factor before they are added.
  Status SetScale(const Table& table, double scale);
  // Checks and prepares a sync of the tensors at `data`, which stay valid until the sync ends.
  Status Begin(const Table& table, void* const* data, int64_t tensors);
  // Runs the sync as Table::Run runs a request.
  Status Run(Table* table, const WaitLimit& limit);

 private:
  ParamSync(TensorList tensors, Segment last);

  TensorList tensors_;
  Segment last_;  // the table's values after the last sync
  double scale_ = 1;
  // If a sync fails while this is true, later syncs fail, since the last values are lost.
  bool is_in_flight_ = false;
};

}  // namespace multiverso
