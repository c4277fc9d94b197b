// Loading: the call that sets the tables to what a checkpoint holds.
//
// The ranks agree on what is to be loaded; the master finds the checkpoint; every rank reads what
// the files say of themselves and compares it with the tables, and then checks its share of all
// blocks. They meet. Only if everything is whole do they go on: the ranks of each node divide the
// rows of the node among them, read them and put them into the tables. So nothing changes unless
// the checkpoint is whole, and it does not matter how many ranks wrote it.
#ifndef MULTIVERSO_SESSION_LOADING_H_
#define MULTIVERSO_SESSION_LOADING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "session/checkpoint_call.h"

namespace multiverso {

class Loading final : public CheckpointCall {
 public:
  // With wish.flag it is no error if there is no checkpoint.
  Loading(Checkpointing* state, std::unique_ptr<Operation> fence, CheckpointRequest request,
          Tables tables, int64_t num_created, Instant deadline);

  Status Step(const WaitLimit& limit) override;

  // After Step returned ok: the checkpoint's step; -1 if there was none.
  int64_t step() const { return step_; }

 private:
  enum class Phase { kBegin, kFound, kVerify, kVerified, kApply, kApplied };

  // Finds the checkpoint, on the master, and says so.
  void FindAndArrive();
  Status TakeFinding();
  Status OpenAndVerify(const WaitLimit& limit);
  // Which of the checkpoint's tables is which.
  Status MatchTables();
  Status Apply(const WaitLimit& limit);
  Status ApplyArea(size_t table, uint32_t area, const WaitLimit& limit);
  // Makes it what it is in a new table.
  Status ClearArea(Table* table, uint32_t area, RowRange rows, const WaitLimit& limit);
  // What is of the whole table.
  Status ApplyRest(size_t table, const WaitLimit& limit);
  // This rank's place among these, of which it is one.
  int64_t PlaceAmong(const std::vector<int>& ranks) const;
  // Of this node's, those that this rank loads.
  RowRange MyRows(const Table& table) const;

  Phase phase_ = Phase::kBegin;
  std::vector<int> loaders_;  // who divide the work
  std::string found_;
  uint64_t id_ = 0;
  int64_t step_ = -1;
  std::unique_ptr<CheckpointReader> reader_;
  std::vector<uint32_t> places_;  // of the tables in the checkpoint
  BlockProgress verified_;
  size_t applied_ = 0;          // tables
  uint32_t applied_areas_ = 0;  // of the table in work
  BlockProgress in_area_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_LOADING_H_
