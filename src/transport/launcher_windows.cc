#include "transport/launcher.h"

namespace multiverso {

// Windows finds MPI on its own search path, so the launcher is not needed.
std::vector<std::string> AncestorPrograms() { return {}; }

std::vector<std::string> LibrariesOfLaunchers(const std::vector<std::string>& /*programs*/,
                                              const std::vector<std::string>& /*names*/) {
  return {};
}

}  // namespace multiverso
