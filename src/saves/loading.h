// Loading: the call that sets the tables to the content of a checkpoint.
//
// After CheckpointCall::Begin, the master finds the checkpoint. Every rank reads the manifest and
// the headers, compares the manifest with the tables, and verifies its share of all blocks. No
// table changes unless the whole checkpoint is intact. Then the ranks of each node divide its rows
// among themselves and read the rows into the tables, so any number of ranks can have written the
// checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/reader.h"
#include "saves/checkpoint_call.h"
#include "saves/table_record.h"

namespace multiverso {

class Loading : private CheckpointCall {
 public:
  // Makes a load. If request.missing_ok is set, a missing checkpoint is not an error.
  Loading(Checkpointing* state, AgreedCall request)
      : CheckpointCall(state, CollectiveKind::kLoad, std::move(request)) {}

  // Loads the checkpoint; called once, after a barrier, with the `tables` and `num_created` of
  // Negotiate. Returns the checkpoint's step, or -1 without a checkpoint.
  Result<int64_t> Run(Tables tables, int64_t num_created, const WaitLimit& limit);

 private:
  // The indices of MasterMessage::values, and what values[kPlace] says of the requested folder.
  enum MasterValue { kId, kStep, kNumber, kPlace };
  enum Place : int64_t { kNoCheckpoint, kHasCheckpoint, kIsCheckpoint };
  // Finds the checkpoint on the master, which sends the checkpoint's identity to the other ranks.
  Status FindCheckpoint(const Status& mine, const WaitLimit& limit);
  Status OpenAndVerify(const WaitLimit& limit);
  // Finds each table in the checkpoint.
  Status MatchTables();
  // The steps in which the keys of hash tables are loaded, before the tables themselves.
  Status ClearKeysOfTables(const WaitLimit& limit);
  Status RestoreKeysOfTables(const WaitLimit& limit);
  Status LoadTables(const WaitLimit& limit);
  // Reads the saved table that belongs to a table.
  ReadArea ReaderOf(size_t table_index, const WaitLimit& limit);
  // Returns the saved table that is loaded into a table.
  const SavedTable& SavedOf(size_t table_index) const {
    return reader_->manifest().tables[saved_indices_[table_index]];
  }
  Status LoadArea(size_t table_index, uint32_t area, const WaitLimit& limit);
  // Sets what is not an area: hyper-parameters, clocks, and update counts that are per section.
  Status LoadOptionsAndCounts(size_t table_index, const WaitLimit& limit);
  // Returns this rank's index in `ranks`, which are in ascending order and contain it.
  int64_t IndexIn(const std::vector<int>& ranks) const;
  // Returns the part of this node's rows that this rank loads.
  RowRange RowsToLoad(const Table& table) const;

  std::vector<int> loaders_;  // the ranks that divide the work
  std::string checkpoint_path_;
  uint64_t id_ = 0;
  int64_t step_ = -1;
  std::unique_ptr<CheckpointReader> reader_;
  std::vector<uint32_t> saved_indices_;             // each table's index in Manifest::tables
  std::vector<std::vector<RestoredRow>> restored_;  // the rows of each hash table
};

}  // namespace multiverso
