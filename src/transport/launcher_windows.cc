#include "transport/launcher.h"

namespace multiverso {

// The MPI of Windows is in a folder that Windows searches: nothing needs to be found beside
// mpiexec.
std::vector<std::string> AncestorPrograms() { return {}; }

std::vector<std::string> LibrariesOfLaunchers(const std::vector<std::string>& /*programs*/,
                                              const std::vector<std::string>& /*names*/) {
  return {};
}

}  // namespace multiverso
