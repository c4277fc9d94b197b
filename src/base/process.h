// This process, as the operating system knows it.
#ifndef MULTIVERSO_BASE_PROCESS_H_
#define MULTIVERSO_BASE_PROCESS_H_

#include <cstdint>

namespace multiverso {

int64_t ProcessId();

// Returns the number of online cores of the machine, at least one.
int64_t OnlineCores();

// Returns the number of cores that this process may run on, at least one.
int64_t AllowedCores();

// Calls `function` in every child that this process forks from now on. Returns false if the system
// refuses. Does nothing on systems without fork.
bool CallInForkedChildren(void (*function)());

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_PROCESS_H_
