#include <limits>

#include "memory/limits.h"

namespace multiverso {

// Windows itself refuses memory that it does not have, when it is allocated.
int64_t MemoryCeiling() { return std::numeric_limits<int64_t>::max(); }
int64_t FreeMemory() { return MemoryCeiling(); }

int64_t PageBytes() { return 4096; }  // on all processors of today

}  // namespace multiverso
