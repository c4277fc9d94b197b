#include "transport/launcher.h"

#include <fstream>

namespace multiverso {
namespace {

// mpirun and mpiexec are often scripts or links, so the programs that they run are launchers too.
bool IsLauncher(const std::string& name) {
  for (const char* stem : {"mpirun", "mpiexec", "hydra_", "prte", "orte"}) {
    if (name.rfind(stem, 0) == 0) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> LibrariesOfLaunchers(const std::vector<std::string>& programs,
                                              const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& program : programs) {
    const size_t slash = program.rfind('/');
    if (slash == std::string::npos || !IsLauncher(program.substr(slash + 1))) continue;
    const std::string folder = program.substr(0, slash);
    for (const char* libraries : {"/../lib/", "/../lib64/"}) {
      for (const std::string& name : names) {
        const std::string path = folder + libraries + name;
        if (std::ifstream(path).good()) found.push_back(path);
      }
    }
  }
  return found;
}

}  // namespace multiverso
