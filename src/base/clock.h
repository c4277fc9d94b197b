// Monotonic time, and how long a call may wait.
#ifndef MULTIVERSO_BASE_CLOCK_H_
#define MULTIVERSO_BASE_CLOCK_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"

namespace multiverso {

using Clock = std::chrono::steady_clock;
using Instant = Clock::time_point;

// Interrupt lets the caller abort a waiting call. Only the waiting thread uses it.
class Interrupt {
 public:
  // Returns the reason for aborting the call, or nothing to continue waiting.
  using Ask = std::function<std::optional<std::string>()>;
  // The least time between two questions, because each one may take the interpreter's lock.
  static constexpr std::chrono::milliseconds kEvery{20};

  explicit Interrupt(Ask ask) : ask_(std::move(ask)), next_(Clock::now() + kEvery) {}

  // Makes Check call `first` with the reason as soon as the call is aborted.
  void OnAbort(std::function<void(const Status&)> first) { first_ = std::move(first); }

  // Returns ok, or aborted with the reason once the caller has aborted the call.
  const Status& Check(Instant now) {
    if (!status_.ok() || now < next_) return status_;
    next_ = now + kEvery;
    const std::optional<std::string> reason = ask_();
    if (!reason.has_value()) return status_;
    status_ = Status(Code::kAborted, *reason);
    if (first_) first_(status_);
    return status_;
  }
  // Returns the result of the last Check.
  const Status& status() const { return status_; }

 private:
  Ask ask_;
  std::function<void(const Status&)> first_;
  Instant next_;
  Status status_;
};

// How long a call may wait.
struct WaitLimit {
  // The call fails with a timeout after this instant.
  Instant deadline;
  // The call returns pending after this instant, for callers that have other work in between.
  Instant slice_end = Instant::max();
  Interrupt* interrupt = nullptr;  // may be null

  Instant first() const { return std::min(deadline, slice_end); }
  bool is_interrupted() const { return interrupt != nullptr && !interrupt->status().ok(); }
  // Call this about every 50 ms during a wait, which ends unless the result is ok. The result is
  // aborted if the caller aborted the call, and pending at the end of the slice.
  Status Check(Instant now) const {
    if (interrupt != nullptr) MV_RETURN_IF_NOT_OK(interrupt->Check(now));
    return now >= slice_end ? Status::Pending() : Status::Ok();
  }

  static WaitLimit Until(Instant deadline, Interrupt* interrupt = nullptr) {
    return WaitLimit{deadline, Instant::max(), interrupt};
  }
  static WaitLimit For(std::chrono::milliseconds timeout) { return Until(Clock::now() + timeout); }
};

inline double SecondsBetween(Instant from, Instant to) {
  return std::chrono::duration<double>(to - from).count();
}

// Returns an instant in nanoseconds of Clock, which all processes of a machine share, so that the
// processes can exchange instants.
inline int64_t Nanoseconds(Instant at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}
inline int64_t NanosecondsNow() { return Nanoseconds(Clock::now()); }

// Returns a time that is up to some milliseconds old. This takes a fifth of the time of
// NanosecondsNow, since the system stores the time at each of its ticks.
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
