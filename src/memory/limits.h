// How much memory this machine can give to one table.
#ifndef MULTIVERSO_MEMORY_LIMITS_H_
#define MULTIVERSO_MEMORY_LIMITS_H_

#include <cstdint>

#include "base/status.h"

namespace multiverso {

// Returns physical memory plus swap, or the limit of this process's control group if it is lower.
int64_t MemoryCeiling();

// Returns MemoryError if this machine can never provide `bytes`. Segments are sparse, so the kernel
// would promise any size and later kill a rank that touches the pages, far from the call that asked
// for too much.
Status CheckFitsInMemory(int64_t bytes);

// Returns MemoryError if `bytes` are not free now. Use this for memory that is touched at once.
Status CheckIsFree(int64_t bytes);

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_LIMITS_H_
