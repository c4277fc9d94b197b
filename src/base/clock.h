// Monotonic time, and how long a call may wait.
#ifndef MULTIVERSO_BASE_CLOCK_H_
#define MULTIVERSO_BASE_CLOCK_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace multiverso {

using Clock = std::chrono::steady_clock;
using Instant = Clock::time_point;

// Two ends of a wait: the deadline of the whole call, after which it is an error, and the end of
// this slice of it, after which it is merely pending.
struct WaitLimit {
  Instant deadline;
  Instant slice_end;

  Instant first() const { return std::min(deadline, slice_end); }

  // A wait of the whole call in one slice.
  static WaitLimit Until(Instant deadline) { return WaitLimit{deadline, Instant::max()}; }
  static WaitLimit For(std::chrono::milliseconds timeout) { return Until(Clock::now() + timeout); }
};

inline double SecondsBetween(Instant from, Instant to) {
  return std::chrono::duration<double>(to - from).count();
}

// Moments that processes tell each other: nanoseconds of Clock, which all of a machine share.
inline int64_t Nanoseconds(Instant at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}
inline int64_t NanosecondsNow() { return Nanoseconds(Clock::now()); }

// The same, but up to some milliseconds ago, where that is cheaper: the system writes this time
// down at each of its ticks, and to read it takes a fifth of what the exact one takes.
inline int64_t RecentNanoseconds() {
#if defined(CLOCK_MONOTONIC_COARSE)
  timespec now{};
  if (clock_gettime(CLOCK_MONOTONIC_COARSE, &now) == 0) {
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
#endif
  return NanosecondsNow();
}

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_CLOCK_H_
