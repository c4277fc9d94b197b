#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "memory/limits.h"

namespace multiverso {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// Calls use(name, number) for each line of a file that begins with a name and a number.
template <class Use>
void ForEachNumber(const char* path, Use use) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return;
  char line[128];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    char name[64];
    long long number = 0;  // NOLINT: the type that sscanf expects
    if (std::sscanf(line, "%63s %lld", name, &number) == 2) use(std::string(name), int64_t{number});
  }
  std::fclose(file);
}

// Returns the number in a limit file of the root control group, or the largest number without one.
// Only the root group that a container sees has limits.
int64_t ReadLimit(const char* path) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return kUnlimited;
  long long limit = 0;  // NOLINT: the type that scanf expects
  const bool is_number = std::fscanf(file, "%lld", &limit) == 1 && limit > 0;
  std::fclose(file);
  return is_number ? int64_t{limit} : kUnlimited;
}

// Returns the bytes that the root control group in that folder can still use, or the largest number
// if it has no limit.
int64_t FreeInGroup(const std::string& folder, const char* limit_name, const char* used_name) {
  const int64_t limit = ReadLimit((folder + limit_name).c_str());
  const int64_t used = ReadLimit((folder + used_name).c_str());
  if (limit == kUnlimited || used == kUnlimited) return kUnlimited;
  // The group's file cache counts as used, but the kernel drops it when it needs memory. It has
  // the same names in the groups of version 1 and 2.
  int64_t cached = 0;
  ForEachNumber((folder + "memory.stat").c_str(), [&](const std::string& name, int64_t bytes) {
    if (name == "inactive_file" || name == "active_file") cached += bytes;
  });
  return std::max<int64_t>(limit - used + cached, 0);
}

}  // namespace

int64_t MemoryCeiling() {
  int64_t ceiling = kUnlimited;
  struct sysinfo info{};
  if (sysinfo(&info) == 0) {
    ceiling = static_cast<int64_t>(info.totalram + info.totalswap) * info.mem_unit;
  }
  ceiling = std::min(ceiling, ReadLimit("/sys/fs/cgroup/memory.max"));
  return std::min(ceiling, ReadLimit("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
}

int64_t FreeMemory() {
  int64_t available = kUnlimited;
  ForEachNumber("/proc/meminfo", [&](const std::string& name, int64_t kilobytes) {
    if (name == "MemAvailable:") available = kilobytes * 1024;
  });
  return std::min(
      {available, FreeInGroup("/sys/fs/cgroup/", "memory.max", "memory.current"),
       FreeInGroup("/sys/fs/cgroup/memory/", "memory.limit_in_bytes", "memory.usage_in_bytes")});
}

}  // namespace multiverso
