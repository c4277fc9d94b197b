// MemoryCredit: lets the ranks of a node use new memory only as long as the machine has it.
//
// Segments are sparse, and the kernel kills a process when no page is left. So a caller that is
// about to touch new pages first takes their bytes. The free memory is looked up only when the
// credit of the last look-up has been used, since reading it takes as long as touching some pages.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"
#include "memory/limits.h"

namespace multiverso {

// Lies in shared memory and is valid when zero-filled.
class MemoryCredit {
 public:
  // Takes `bytes`, which the caller gives back when it has touched them. Returns MemoryError, and
  // takes nothing, if the machine does not have them. `free` returns the free bytes.
  Status Take(int64_t bytes, int64_t (*free)() = FreeMemory);
  void GiveBack(int64_t bytes) { taken_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> credit_;
  // Bytes taken and not yet given back, which the free memory may still include. A rank that dies
  // before it gives them back makes the check stricter by the bytes of one call.
  std::atomic<int64_t> taken_;
};

}  // namespace multiverso
