// Monotonic time, and what ends a wait: a deadline, the end of a slice, or an interrupt.
#pragma once

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

// A wait of this time has no limit. It is finite, so that sums with it do not overflow the clock.
inline constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(24 * 365 * 100);

// Interrupt asks the caller of a waiting call whether to abort the call. One thread uses it: the
// thread that makes the call.
class Interrupt {
 public:
  // Returns the reason for aborting the call, or nothing to continue waiting.
  using Ask = std::function<std::optional<std::string>()>;
  // The shortest time between two questions, since a question may take the Python interpreter's
  // lock.
  static constexpr std::chrono::milliseconds kMinInterval{20};

  explicit Interrupt(Ask ask) : ask_(std::move(ask)), next_(Clock::now() + kMinInterval) {}

  // Makes Check call `action` with the aborted status when the caller aborts the call.
  void OnAbort(std::function<void(const Status&)> action) { on_abort_ = std::move(action); }
  // Returns ok, or aborted with the reason once the caller has aborted the call. An empty reason
  // lets a call that other ranks take part in go on, and fail at its end.
  const Status& Check(Instant now) {
    if (!status_.ok() || now < next_) return status_;
    next_ = now + kMinInterval;
    const std::optional<std::string> reason = ask_();
    if (!reason.has_value()) return status_;
    if (reason->empty() && on_abort_) {
      fails_at_end_ = true;
      return status_;
    }
    status_ = Status(Code::kAborted, *reason);
    if (on_abort_) on_abort_(status_);
    return status_;
  }
  // Returns the result of the last Check.
  const Status& status() const { return status_; }
  // Returns the result of a call whose body has returned `result`.
  Status ResultOf(const Status& result) const {
    if (!status_.ok()) return status_;
    return fails_at_end_ && result.ok() ? Status(Code::kAborted, "interrupted") : result;
  }

 private:
  Ask ask_;
  std::function<void(const Status&)> on_abort_;
  Instant next_;  // when to ask again
  Status status_;
  bool fails_at_end_ = false;
};

// How long a call may wait.
struct WaitLimit {
  // The call fails with a timeout after this instant.
  Instant deadline;
  // The end of the slice: a call that still waits then returns pending, since its caller has other
  // work, and the caller calls again.
  Instant slice_end = Instant::max();
  Interrupt* interrupt = nullptr;  // may be null

  // How often a waiting call checks its limit, and whether ranks that it waits for are lost.
  static constexpr std::chrono::milliseconds kCheckInterval = Interrupt::kMinInterval;

  Instant earliest() const { return std::min(deadline, slice_end); }
  // Returns when a call that waits at `now` has to check next.
  Instant NextCheck(Instant now) const { return std::min(earliest(), now + kCheckInterval); }
  bool is_interrupted() const { return interrupt != nullptr && !interrupt->status().ok(); }
  // A waiting call calls this at each check, and returns the result unless it is ok: aborted if the
  // caller aborts the call, pending after the end of the slice. The deadline is not checked.
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

// Returns `instant` in nanoseconds. Clock is the same in all processes of a machine, so they can
// exchange these numbers.
inline int64_t Nanoseconds(Instant instant) {
  return std::chrono::nanoseconds(instant.time_since_epoch()).count();
}
inline int64_t NanosecondsNow() { return Nanoseconds(Clock::now()); }

// Returns a time that may be some milliseconds old. On Linux a call takes a fifth of the time of
// NanosecondsNow, since the kernel stores this time at each of its ticks.
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
