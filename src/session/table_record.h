// TableRecord: a table as a checkpoint has it.
#ifndef MULTIVERSO_SESSION_TABLE_RECORD_H_
#define MULTIVERSO_SESSION_TABLE_RECORD_H_

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/format.h"
#include "table/table.h"
#include "transport/membership.h"

namespace multiverso {

// With the hyper-parameters as they are now, without clocks.
SavedTable RecordOf(const Table& table);
// Whether that rank writes a file of data.
bool WritesFile(const Membership& members, int rank);

// `bytes` bytes of a section of that table from `offset` on, to `out`.
Status CopySection(Table* table, const Section& section, int64_t offset, int64_t bytes, char* out,
                   const WaitLimit& limit);
// How often those rows have been updated, where a whole section has one count; else 0.
uint64_t StepsOfRows(Table* table, RowRange rows);

// Whether what has been saved can be loaded into the table; MismatchError with both.
Status CheckFits(const SavedTable& saved, const Table& table);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_TABLE_RECORD_H_
