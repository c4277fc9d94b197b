#include "base/process.h"

namespace multiverso {

const char* PlatformName() { return "posix"; }

int64_t AllowedCores() { return OnlineCores(); }

}  // namespace multiverso
