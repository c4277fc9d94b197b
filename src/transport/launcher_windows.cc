#include "transport/launcher.h"

namespace multiverso {

// Windows itself searches the folder of MPI, so the launcher is not needed to find MPI.
std::vector<std::string> AncestorPrograms() { return {}; }

std::vector<std::string> LibrariesOfLaunchers(const std::vector<std::string>& /*programs*/,
                                              const std::vector<std::string>& /*names*/) {
  return {};
}

}  // namespace multiverso
