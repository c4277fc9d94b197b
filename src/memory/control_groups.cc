#include "memory/control_groups.h"

#include <cstdlib>
#include <sstream>

namespace multiverso {
namespace {

// A place where groups are mounted as folders.
struct GroupMount {
  std::string root;   // the group that is mounted
  std::string point;  // the folder
  int version;
};

std::vector<std::string> Split(const std::string& text, char separator) {
  std::istringstream in(text);
  std::vector<std::string> parts;
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

bool HasController(const std::string& list) {
  for (const std::string& controller : Split(list, ',')) {
    if (controller == "memory") return true;
  }
  return false;
}

// Replaces the octal numbers, such as \040 for a space, in a path of mountinfo.
std::string Unescaped(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '\\' && i + 3 < path.size()) {
      out += static_cast<char>(std::strtol(path.substr(i + 1, 3).c_str(), nullptr, 8));
      i += 3;
    } else {
      out += path[i];
    }
  }
  return out;
}

// Returns the mounts of groups that may limit memory, from lines such as
// "32 31 0:29 /root /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory".
std::vector<GroupMount> MountsIn(const std::string& mounts) {
  std::vector<GroupMount> found;
  for (const std::string& line : Split(mounts, '\n')) {
    const size_t separator = line.find(" - ");
    if (separator == std::string::npos) continue;
    const std::vector<std::string> mount = Split(line.substr(0, separator), ' ');
    const std::vector<std::string> system = Split(line.substr(separator + 3), ' ');
    if (mount.size() < 5 || system.size() < 3) continue;
    const bool is_first = system[0] == "cgroup" && HasController(system[2]);
    if (is_first || system[0] == "cgroup2") {
      found.push_back(GroupMount{Unescaped(mount[3]), Unescaped(mount[4]), is_first ? 1 : 2});
    }
  }
  return found;
}

// Returns the path of this process's group in the hierarchy of a version, or an empty text. A line
// is "4:cpu,memory:/user.slice", or "0::/user.slice" for version 2.
std::string PathOfGroup(const std::string& groups, int version) {
  for (const std::string& line : Split(groups, '\n')) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_wanted = version == 1 ? HasController(controllers) : controllers.empty();
    if (is_wanted) return line.substr(second + 1);
  }
  return "";
}

// Returns whether the group `path` is `root` or below, and if so its path relative to that.
bool IsWithin(const std::string& path, const std::string& root, std::string* relative) {
  const std::string prefix = root == "/" ? "" : root;
  if (path.compare(0, prefix.size(), prefix) != 0) return false;
  *relative = path.substr(prefix.size());
  return relative->empty() || relative->front() == '/';
}

}  // namespace

std::vector<ControlGroup> MemoryGroups(const std::string& groups, const std::string& mounts) {
  std::vector<ControlGroup> found;
  std::vector<ControlGroup> roots;
  for (const GroupMount& mount : MountsIn(mounts)) {
    roots.push_back(ControlGroup{mount.point + "/", mount.version});
    const std::string path = PathOfGroup(groups, mount.version);
    std::string relative;
    if (path.empty() || !IsWithin(path, mount.root, &relative)) continue;
    if (relative == "/") relative.clear();
    for (;;) {
      found.push_back(ControlGroup{mount.point + relative + "/", mount.version});
      if (relative.empty()) break;
      relative.resize(relative.rfind('/'));
    }
  }
  // A container may not show where in the hierarchy its groups are mounted. Then the group that is
  // mounted is its own.
  return found.empty() ? roots : found;
}

}  // namespace multiverso
