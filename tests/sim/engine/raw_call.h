// System calls past the C library, whose functions the engine replaces, and the functions that it
// replaces, for calls outside of fibers.
#pragma once

#include <errno.h>
#include <sys/syscall.h>

namespace sim {

// Makes a system call. Returns -1 with errno after a failure, as the C library does.
template <class... Arguments>
long RawCall(long number, Arguments... arguments) {
  long a[6] = {};
  int count = 0;
  ((a[count++] = static_cast<long>(arguments)), ...);
  long result = 0;
  register long r10 __asm__("r10") = a[3];
  register long r8 __asm__("r8") = a[4];
  register long r9 __asm__("r9") = a[5];
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// Returns the address of the C library's own function.
void* FindInLibrary(const char* name);

// Calls the C library's own function, of the same type as the one that the engine defines.
#define SIM_REAL(name)                                                                        \
  ([]() -> decltype(&::name) {                                                                \
    static const auto found = reinterpret_cast<decltype(&::name)>(sim::FindInLibrary(#name)); \
    return found;                                                                             \
  }())

}  // namespace sim
