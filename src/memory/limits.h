// Checks whether this machine has enough memory for a table, or for the copy of one.
#ifndef MULTIVERSO_MEMORY_LIMITS_H_
#define MULTIVERSO_MEMORY_LIMITS_H_

#include <cstdint>

#include "base/status.h"

namespace multiverso {

// Returns the size of memory and swap (page file) together, or of the container's memory if that is
// smaller. Returns the largest number if the size is unknown.
int64_t MemoryCeiling();

// Returns MemoryError if `bytes` exceeds MemoryCeiling. Segments are sparse, so the kernel would
// promise any size, and later kill a rank that touches the pages, far from the call that asked for
// too much.
Status CheckFitsInMemory(int64_t bytes);

// Returns MemoryError if less than `bytes` is free now, for memory that is about to be touched.
Status CheckIsFree(int64_t bytes);

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_LIMITS_H_
