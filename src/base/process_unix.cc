#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "base/process.h"

namespace multiverso {

int64_t ProcessId() { return getpid(); }

int64_t OnlineCores() { return std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN)); }

bool CallInForkedChildren(void (*function)()) {
  return pthread_atfork(nullptr, nullptr, function) == 0;
}

}  // namespace multiverso
