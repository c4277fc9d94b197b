#include <limits>

#include "base/windows.h"
#include "memory/limits.h"

namespace multiverso {
namespace {

// Returns the state of the memory; ullTotalPageFile is 0 if the state is unknown.
MEMORYSTATUSEX MemoryState() {
  MEMORYSTATUSEX memory{};
  memory.dwLength = sizeof(memory);
  if (GlobalMemoryStatusEx(&memory) == 0) memory.ullTotalPageFile = 0;
  return memory;
}

}  // namespace

int64_t MemoryCeiling() {
  // ullTotalPageFile is the size of memory and page file together.
  const MEMORYSTATUSEX memory = MemoryState();
  return memory.ullTotalPageFile == 0 ? std::numeric_limits<int64_t>::max()
                                      : static_cast<int64_t>(memory.ullTotalPageFile);
}

int64_t PageBytes() {
  SYSTEM_INFO info{};
  GetSystemInfo(&info);
  return static_cast<int64_t>(info.dwPageSize);
}

int64_t FreeMemory() {
  const MEMORYSTATUSEX memory = MemoryState();
  return memory.ullTotalPageFile == 0 ? std::numeric_limits<int64_t>::max()
                                      : static_cast<int64_t>(memory.ullAvailPhys);
}

}  // namespace multiverso
