// Monotonic time, and how long a call may wait.
#ifndef MULTIVERSO_BASE_CLOCK_H_
#define MULTIVERSO_BASE_CLOCK_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

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

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_CLOCK_H_
