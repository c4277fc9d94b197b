// How much memory this machine has, and checks whether it is enough for a table or a copy of one.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace multiverso {

// Returns the size of memory and swap (page file) together, or the smallest limit of a control
// group of this process, such as a container or a job of Slurm, if that is smaller. Returns the
// largest number if the size is unknown.
int64_t MemoryCeiling();

// Returns MemoryError if `bytes` exceeds MemoryCeiling. Segments are sparse, so the kernel would
// promise any size, and later kill a rank that touches the pages, far from the call that asked for
// too much.
Status CheckFitsInMemory(int64_t bytes);

// Returns the size of a page, the unit in which the system hands out memory.
int64_t PageBytes();

// Returns the bytes that programs can still use on this machine or in the control groups of this
// process, or the largest number if that is unknown.
int64_t FreeMemory();

// Returns MemoryError if less than `bytes` is free now, for memory that is about to be touched.
Status CheckIsFree(int64_t bytes);

}  // namespace multiverso
