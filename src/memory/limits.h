// How much memory this machine can give to one table.
#ifndef MULTIVERSO_MEMORY_LIMITS_H_
#define MULTIVERSO_MEMORY_LIMITS_H_

#include <cstdint>

#include "base/status.h"

namespace multiverso {

// Physical memory plus swap, or the limit of this process's control group where that is lower.
int64_t MemoryCeiling();

// MemoryError if `bytes` can never be had here. Segments are sparse, so the kernel would promise
// any size and kill a rank when the pages are touched: far from the call that asked too much.
Status CheckFitsInMemory(int64_t bytes);

// MemoryError if so much is not free now: for memory that will be touched at once.
Status CheckIsFree(int64_t bytes);

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_LIMITS_H_
