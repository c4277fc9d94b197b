// Writes a checkpoint from arrays of this process, without tables and other ranks, for conversions
// from other formats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/file_system.h"
#include "checkpoint/format.h"

namespace multiverso {

struct MemoryTable {
  SavedTable record;
  std::vector<const void*> areas;  // the values of each SavedTable::area(index)
  uint64_t steps = 0;              // the update count, if the table counts per section
  int64_t stored_rows = 0;         // the number of rows in each area, if the table is lazy
};

// Writes a checkpoint to `folder` and waits until the checkpoint is complete. `step` is passed to
// CheckpointFolder::Begin, and `keep` to Retire unless it is 0, which keeps all. `interrupt` may be
// null.
Status SaveMemory(FileSystem* files, const std::string& folder, int64_t step, int64_t keep,
                  const std::vector<MemoryTable>& tables, const std::string& library,
                  Interrupt* interrupt = nullptr);

}  // namespace multiverso
