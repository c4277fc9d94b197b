// A table in a checkpoint: describes the table, and copies sections from it and to it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "calls/table.h"
#include "checkpoint/format.h"
#include "memory/streaming_copy.h"

namespace multiverso {

// Returns the table's description with its current hyper-parameters, without clocks.
SavedTable RecordOf(const Table& table);

// Returns those of the rows, which are on this node, that have been touched, or null if the table
// has no lazy rows and stores all.
std::shared_ptr<const StoredRows> TouchedRows(const Table& table, RowRange rows);
// Gives rows of this node the values of a saved initializer and no state (ShardCopies::Restart),
// before the rows that a checkpoint stores are loaded.
Status RestartRows(Table* table, RowRange rows, const InitializerSpec& initializer,
                   const WaitLimit& limit);

// Copies `bytes` bytes of a section of the table, from byte `offset` on, to `out`. `next_read`
// says when the copy will be read.
Status CopySection(Table* table, const Section& section, int64_t offset, int64_t bytes, char* out,
                   NextRead next_read, const WaitLimit& limit);
// Sets *steps to the rows' update count if the table counts per section, and otherwise to 0.
Status StepsOfSection(Table* table, RowRange rows, uint64_t* steps, const WaitLimit& limit);
// Sets `count` elements of the area from element `first` on; to 0 in areas of parameters and state
// if `data` is null. In the steps area, an element is the update count of a row.
Status LoadPart(Table* table, uint32_t area, int64_t first, int64_t count, const char* data,
                const WaitLimit& limit);
// Sets the rows' update count if the table counts per section.
Status LoadStepsOfSection(Table* table, RowRange rows, uint64_t steps, const WaitLimit& limit);

// Takes `count` elements of an area from element `first` on, and reads an area of rows of a saved
// table, as CheckpointReader::Read does.
using TakeElements = std::function<Status(int64_t first, int64_t count, const char* data)>;
using ReadArea = std::function<Status(uint32_t area, RowRange rows, const TakeElements& take)>;

// A saved row of a hash table, and where it is in the table into which it is loaded.
struct RestoredRow {
  int64_t saved_row;
  int64_t row;
  int64_t key;
};

// The steps in which a hash table is loaded. Each is for the rows of whole stripes, and all ranks
// of the node have ended it before any begins the next, because a key may take the room of any row
// of the node. The first one removes all keys.
Status ClearKeys(Table* table, RowRange rows, const WaitLimit& limit);
// Gives rows to the saved keys that belong into these stripes, and appends them to *restored. In a
// full table, later keys take the rows of earlier ones. Sets *had_ages if saved keys could expire.
Status RestoreKeys(Table* table, const SavedTable& saved, RowRange rows, const ReadArea& read,
                   std::vector<RestoredRow>* restored, bool* had_ages, const WaitLimit& limit);
// Loads the values and the state of the restored keys that have kept their rows.
Status LoadRowsOfKeys(Table* table, const SavedTable& saved, RowRange rows, const ReadArea& read,
                      std::vector<RestoredRow> restored, const WaitLimit& limit);

// Checks that the saved table of the checkpoint `path` can be loaded into `table`. Returns a
// MismatchError that names both, CheckpointCorruptError if no table can have such a description, or
// ValueError if no table of the session's mode can have the saved options.
Status CheckFits(const std::string& path, const SavedTable& saved, const Table& table);

}  // namespace multiverso
