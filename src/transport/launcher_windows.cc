#include "transport/launcher.h"

namespace multiverso {

// On Windows, MPI is in a folder that the system searches.
std::vector<std::string> AncestorPrograms() { return {}; }

std::vector<std::string> LibrariesOfLaunchers(const std::vector<std::string>& /*programs*/,
                                              const std::vector<std::string>& /*names*/) {
  return {};
}

}  // namespace multiverso
