// TableRecord: a table as a checkpoint has it.
#ifndef MULTIVERSO_SESSION_TABLE_RECORD_H_
#define MULTIVERSO_SESSION_TABLE_RECORD_H_

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/format.h"
#include "table/table.h"

namespace multiverso {

// With the hyper-parameters as they are now, without clocks.
SavedTable RecordOf(const Table& table);

// `bytes` bytes of a section of that table from `offset` on, to `out`, where they are read `when`.
Status CopySection(Table* table, const Section& section, int64_t offset, int64_t bytes, char* out,
                   ReadAgain when, const WaitLimit& limit);
// How often those rows have been updated, where a whole section has one count; else 0.
Status StepsOfSection(Table* table, RowRange rows, uint64_t* steps, const WaitLimit& limit);
// `count` elements of that area from number `first` on; of steps, a number for each row.
Status LoadPart(Table* table, uint32_t area, int64_t first, int64_t count, const char* data,
                const WaitLimit& limit);
// The rows have been updated so often, where a whole section has one count.
Status LoadStepsOfSection(Table* table, RowRange rows, uint64_t steps, const WaitLimit& limit);

// Whether what has been saved, in the checkpoint `path`, can be loaded into the table:
// MismatchError with both if not, CheckpointCorruptError if no table can be so.
Status CheckFits(const std::string& path, const SavedTable& saved, const Table& table);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_TABLE_RECORD_H_
