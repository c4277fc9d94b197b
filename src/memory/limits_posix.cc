#include <unistd.h>

#include <limits>

#include "memory/limits.h"

namespace multiverso {

// The system may create swap files when it needs them, so only the memory is counted.
int64_t MemoryCeiling() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  return pages > 0 ? pages * PageBytes() : std::numeric_limits<int64_t>::max();
}

// POSIX does not tell how much memory programs can still use, so all of it counts as free.
int64_t FreeMemory() { return MemoryCeiling(); }

}  // namespace multiverso
