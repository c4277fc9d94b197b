// The virtual time as the clocks of the C library show it.
#pragma once

#include <time.h>

#include <cstdint>

namespace sim {

// Returns the virtual time at which that clock shows `time`.
int64_t FromClock(clockid_t clock, const timespec& time);
int64_t NanosecondsOf(const timespec& time);
// Returns a random delay, by which the kernel prolongs a sleep.
int64_t Delay();

}  // namespace sim
