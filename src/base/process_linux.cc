#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/process.h"

namespace multiverso {

int64_t ProcessId() { return getpid(); }

int64_t OnlineCores() { return std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN)); }

int64_t AllowedCores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

bool CallInForkedChildren(void (*function)()) {
  return pthread_atfork(nullptr, nullptr, function) == 0;
}

}  // namespace multiverso
