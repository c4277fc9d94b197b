#include <sched.h>

#include "base/process.h"

namespace multiverso {

const char* PlatformName() { return "linux"; }

int64_t AllowedCores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace multiverso
