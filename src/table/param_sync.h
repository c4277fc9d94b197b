// ParamSync: keeps the tensors of a model in step with a table.
//
// A sync adds current - last to the table, reads the table, and writes it to both. If the table's
// updater takes gradients, it adds last - current, and so makes a step of the optimiser in the
// direction in which the worker has gone; if it takes positions, it adds current and moves current
// towards the table. Where the worker changes the parameters itself, that is one pass over the
// memory, stripe by stripe (Shard::Exchange). Where it does not, in sync mode and where rows lie on
// other nodes, the delta takes the place of the last values, which are not needed any more: they
// become the table's. So there is never a copy but these.
#ifndef MULTIVERSO_TABLE_PARAM_SYNC_H_
#define MULTIVERSO_TABLE_PARAM_SYNC_H_

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/operation.h"
#include "base/status.h"
#include "memory/segment.h"
#include "shard/shard.h"
#include "shard/tensor_list.h"
#include "table/table.h"

namespace multiverso {

// Used by one thread at a time. Does not hold the table, which may go before it.
class ParamSync {
 public:
  // For tensors of `counts` elements, which are `values` now like the table.
  static Result<std::unique_ptr<ParamSync>> Make(const Table& table, const int64_t* counts,
                                                 int64_t tensors, const void* values);

  // Begins a sync of the tensors that are at `data`, which stays valid until its end. Fails, with
  // nothing done, if it cannot be made.
  Status Begin(const Table& table, void* const* data, int64_t tensors);
  // Does it; pending like the calls of the table. Not called again after anything but pending.
  Status Run(Table* table, Progress* progress, const WaitLimit& limit);

  // The same for a table that spans nodes: the operation that adds and gets, and what is to be done
  // when it has succeeded.
  std::unique_ptr<Operation> Start(Table* table, Instant deadline);
  void Finish(const Table& table);

 private:
  void TakeDelta(const Table& table);

  ParamSync(TensorList tensors, Segment last);

  TensorList tensors_;
  Segment last_;  // of the whole table: its values after the last sync
  // ... or the delta that a sync has put there; after one that failed, for good.
  bool last_is_delta_ = false;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_PARAM_SYNC_H_
