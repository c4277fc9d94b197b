#include "transport/launcher.h"

namespace multiverso {

// Without /proc the ancestors are unknown: a C program names its MPI, or loads it first.
std::vector<std::string> AncestorPrograms() { return {}; }

}  // namespace multiverso
