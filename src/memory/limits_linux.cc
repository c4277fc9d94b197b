#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memory/control_groups.h"
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

// Returns the number in a file of a control group, or the largest number without one. Version 1
// writes "no limit" as a number that depends on the size of a page, and is never a real one.
int64_t ReadLimit(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return kUnlimited;
  long long limit = 0;  // NOLINT: the type that scanf expects
  const bool is_number = std::fscanf(file, "%lld", &limit) == 1 && limit >= 0;
  std::fclose(file);
  return is_number && limit < kUnlimited / 2 ? int64_t{limit} : kUnlimited;
}

std::string ReadText(const char* path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Returns the groups of this process now: another process may move it to other groups. The mounts,
// which take longer to read than all else here, are read again only after that.
const std::vector<ControlGroup>& GroupsOfThisProcess() {
  thread_local std::optional<std::string> names;  // null before the first call
  thread_local std::vector<ControlGroup> groups;
  std::string names_now = ReadText("/proc/self/cgroup");
  if (names != names_now) {
    groups = MemoryGroups(names_now, ReadText("/proc/self/mountinfo"));
    names = std::move(names_now);
  }
  return groups;
}

// Returns the bytes that a control group can still use, or the largest number if it has no limit.
int64_t FreeInGroup(const ControlGroup& group) {
  const int64_t limit = ReadLimit(group.limit_path());
  if (limit == kUnlimited) return kUnlimited;
  const int64_t used = ReadLimit(group.used_path());
  if (used == kUnlimited) return kUnlimited;
  // The group's file cache counts as used, but the kernel drops it when it needs memory.
  const std::string prefix = group.version == 1 ? "total_" : "";  // with the groups below
  int64_t cached = 0;
  ForEachNumber((group.folder + "memory.stat").c_str(),
                [&](const std::string& name, int64_t bytes) {
                  if (name == prefix + "inactive_file" || name == prefix + "active_file")
                    cached += bytes;
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
  for (const ControlGroup& group : GroupsOfThisProcess()) {
    ceiling = std::min(ceiling, ReadLimit(group.limit_path()));
  }
  return ceiling;
}

int64_t FreeMemory() {
  int64_t available = kUnlimited;
  ForEachNumber("/proc/meminfo", [&](const std::string& name, int64_t kilobytes) {
    if (name == "MemAvailable:") available = kilobytes * 1024;
  });
  for (const ControlGroup& group : GroupsOfThisProcess()) {
    available = std::min(available, FreeInGroup(group));
  }
  return available;
}

}  // namespace multiverso
