#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/text.h"
#include "memory/limits.h"

namespace multiverso {
namespace {

// Returns the number in a limit file of the root control group, or the largest number without one.
// Only the root group that a container sees has limits.
int64_t ReadLimit(const char* path) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return std::numeric_limits<int64_t>::max();
  long long limit = 0;  // NOLINT: the type that scanf expects
  const bool is_number = std::fscanf(file, "%lld", &limit) == 1 && limit > 0;
  std::fclose(file);
  return is_number ? int64_t{limit} : std::numeric_limits<int64_t>::max();
}

}  // namespace

int64_t MemoryCeiling() {
  int64_t ceiling = std::numeric_limits<int64_t>::max();
  struct sysinfo info{};
  if (sysinfo(&info) == 0) {
    ceiling = static_cast<int64_t>(info.totalram + info.totalswap) * info.mem_unit;
  }
  ceiling = std::min(ceiling, ReadLimit("/sys/fs/cgroup/memory.max"));
  return std::min(ceiling, ReadLimit("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
}

Status CheckFitsInMemory(int64_t bytes) {
  const int64_t ceiling = MemoryCeiling();
  if (bytes <= ceiling) return Status::Ok();
  return Status(Code::kMemory, StrCat("cannot hold ", bytes, " bytes: this machine has ", ceiling,
                                      " bytes of memory and swap in all"));
}

Status CheckIsFree(int64_t bytes) {
  MV_RETURN_IF_NOT_OK(CheckFitsInMemory(bytes));
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return Status::Ok();
  char line[128];
  long long kilobytes = -1;  // NOLINT: the type that sscanf expects
  while (kilobytes < 0 && std::fgets(line, sizeof(line), file) != nullptr) {
    (void)std::sscanf(line, "MemAvailable: %lld kB", &kilobytes);
  }
  std::fclose(file);
  if (kilobytes < 0 || bytes <= int64_t{kilobytes} * 1024) return Status::Ok();
  return Status(Code::kMemory, StrCat("cannot hold ", bytes, " bytes more: ",
                                      int64_t{kilobytes} * 1024, " are free on this machine"));
}

}  // namespace multiverso
