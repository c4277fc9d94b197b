// Finds the control groups of Linux that limit the memory of this process: its group and all groups
// above that. Slurm, systemd and container runtimes set their limits on one of them.
#pragma once

#include <string>
#include <vector>

namespace multiverso {

struct ControlGroup {
  std::string folder;  // with a slash at its end
  int version = 2;     // of the interface of control groups, which gives the files their names

  std::string limit_path() const {
    return folder + (version == 1 ? "memory.limit_in_bytes" : "memory.max");
  }
  std::string used_path() const {
    return folder + (version == 1 ? "memory.usage_in_bytes" : "memory.current");
  }
};

// Returns the groups, of which some may have no limit or not exist in this mount namespace.
// `groups` and `mounts` are the contents of /proc/self/cgroup and /proc/self/mountinfo.
std::vector<ControlGroup> MemoryGroups(const std::string& groups, const std::string& mounts);

}  // namespace multiverso
