#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "transport/launcher.h"

namespace multiverso {
namespace {

constexpr int kMaxAncestors = 32;

// Returns 0 if the parent is unknown.
int ParentOf(int pid) {
  std::ifstream file(StrCat("/proc/", pid, "/stat"));
  std::stringstream text;
  text << file.rdbuf();
  // The format is "pid (name) state parent ...", where the name may contain anything.
  const size_t name_end = text.str().rfind(')');
  if (name_end == std::string::npos || name_end + 4 > text.str().size()) return 0;
  return std::atoi(text.str().c_str() + name_end + 4);
}

}  // namespace

std::vector<std::string> AncestorPrograms() {
  std::vector<std::string> programs;
  int pid = getppid();
  for (int i = 0; i < kMaxAncestors && pid > 1; ++i, pid = ParentOf(pid)) {
    char path[4096];
    const ssize_t length = readlink(StrCat("/proc/", pid, "/exe").c_str(), path, sizeof(path));
    if (length > 0) programs.emplace_back(path, static_cast<size_t>(length));
  }
  return programs;
}

}  // namespace multiverso
