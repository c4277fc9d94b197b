// This process, as the operating system knows it.
#ifndef MULTIVERSO_BASE_PROCESS_H_
#define MULTIVERSO_BASE_PROCESS_H_

#include <cstdint>

namespace multiverso {

int64_t ProcessId();

// The number of online cores of the machine, at least one.
int64_t OnlineCores();

// The number of cores that this process may run on, at least one.
int64_t AllowedCores();

// From now on calls `function` in every child that this process forks. False if the system refuses.
// A no-op on systems without fork.
bool CallInForkedChildren(void (*function)());

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_PROCESS_H_
