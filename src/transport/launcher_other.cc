#include "transport/launcher.h"

namespace multiverso {

// Windows finds MPI on its own search path. Elsewhere a C program names its MPI, or loads it first.
std::vector<std::string> AncestorPrograms() { return {}; }

}  // namespace multiverso
