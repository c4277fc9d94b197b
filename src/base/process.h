// This process, as its operating system knows it.
#ifndef MULTIVERSO_BASE_PROCESS_H_
#define MULTIVERSO_BASE_PROCESS_H_

#include <cstdint>

namespace multiverso {

int64_t ProcessId();

// How many cores the machine has running, at least one.
int64_t OnlineCores();

// How many of them this process may run on, at least one.
int64_t AllowedCores();

// From now on calls `function` in every child that this process forks. False if that cannot be
// had. Where processes do not fork there is nothing to do.
bool CallInForkedChildren(void (*function)());

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_PROCESS_H_
