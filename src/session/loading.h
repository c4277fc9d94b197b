// Loading: the call that sets the tables to the content of a checkpoint.
//
// After CheckpointCall::Begin the master finds the checkpoint. Every rank reads the headers of the
// files, compares them with the tables, and verifies its share of all blocks. Nothing changes
// unless the whole checkpoint is intact. Then the ranks of each node divide the rows of the node
// among them and read them into the tables, so the number of ranks that wrote the checkpoint does
// not matter.
#ifndef MULTIVERSO_SESSION_LOADING_H_
#define MULTIVERSO_SESSION_LOADING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/reader.h"
#include "session/checkpoint_call.h"

namespace multiverso {

class Loading : private CheckpointCall {
 public:
  // If request.flag is set, a missing checkpoint is not an error.
  Loading(Checkpointing* state, CheckpointRequest request)
      : CheckpointCall(state, CollectiveKind::kLoad, std::move(request)) {}

  // Called once, after a barrier. `tables` and `num_created` as in Negotiate. Returns the
  // checkpoint's step; -1 without a checkpoint.
  Result<int64_t> Run(Tables tables, int64_t num_created, const WaitLimit& limit);

 private:
  // The master finds the checkpoint; the others learn which it is.
  Status Find(const WaitLimit& limit);
  Status OpenAndVerify(const WaitLimit& limit);
  // Finds each table's place in the checkpoint.
  Status MatchTables();
  Status Apply(const WaitLimit& limit);
  Status ApplyArea(size_t table, uint32_t area, const WaitLimit& limit);
  // Sets the area to its content in a new table.
  static Status ClearArea(Table* table, uint32_t area, RowRange rows, const WaitLimit& limit);
  // Applies what belongs to the whole table.
  Status ApplyRest(size_t table, const WaitLimit& limit);
  // This rank's index in `ranks`, which contain it.
  int64_t PlaceAmong(const std::vector<int>& ranks) const;
  // The rows of this node that this rank loads.
  RowRange MyRows(const Table& table) const;

  std::vector<int> loaders_;  // the ranks that divide the work
  std::string found_;
  uint64_t id_ = 0;
  int64_t step_ = -1;
  std::unique_ptr<CheckpointReader> reader_;
  std::vector<uint32_t> places_;  // of the tables in the checkpoint
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_LOADING_H_
