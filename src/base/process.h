// This process: its platform, its id, the cores it can use, and the children that it forks.
#pragma once

#include <cstdint>

namespace multiverso {

// Returns which of the platform's source files the library has: "linux", "windows", or "posix" for
// other systems.
const char* PlatformName();

int64_t ProcessId();

// Returns a number that tells a process from others that have the same id at another time: on Linux
// when it started. Returns 0 if there is no such process, or it has ended.
int64_t ProcessStart(int64_t process);

// Returns the number of online cores of the machine, or 1 if the number is unknown.
int64_t OnlineCores();

// Returns the number of cores that this process may run on: on Linux 1 if the number is unknown,
// elsewhere all online cores.
int64_t AllowedCores();

// Registers `function` to be called in every child that this process forks from now on. Returns
// false if the system refuses. Does nothing on Windows, which has no fork.
bool CallInForkedChildren(void (*function)());

// Registers `function` to be called with the exit code when this process exits, before the exit
// handlers that were registered earlier. Returns false on systems that do not tell the code: all
// but Linux with glibc.
bool CallWithExitCode(void (*function)(int code));

}  // namespace multiverso
