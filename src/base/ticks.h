// Ticks: a clock that costs a few nanoseconds, for notes that every call takes.
#ifndef MULTIVERSO_BASE_TICKS_H_
#define MULTIVERSO_BASE_TICKS_H_

#include <cstdint>

#include "base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace multiverso {

// A counter that all cores of a machine share and that goes on at a constant rate, which
// TicksPerSecond finds out.
inline uint64_t Ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return static_cast<uint64_t>(Clock::now().time_since_epoch().count());
#endif
}

// The same moment on both clocks.
struct Moment {
  uint64_t ticks = 0;
  int64_t nanoseconds = 0;  // of Clock, which all processes of a machine share

  static int64_t Nanoseconds(Instant at) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
  }
  static Moment Now() { return Moment{Ticks(), Nanoseconds(Clock::now())}; }

  // How many seconds lie between two counts, by what has passed since this moment until `now`.
  double Seconds(uint64_t from, uint64_t to, const Moment& now) const {
    if (now.ticks <= ticks || to <= from) return 0;
    return static_cast<double>(to - from) * static_cast<double>(now.nanoseconds - nanoseconds) /
           static_cast<double>(now.ticks - ticks) * 1e-9;
  }
};

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_TICKS_H_
