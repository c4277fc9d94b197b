// Monotonic time, and what ends a wait: a deadline, the end of a slice, or an interrupt.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"

namespace multiverso {

using Clock = std::chrono::steady_clock;
using Instant = Clock::time_point;

// A wait of this time has no limit. It is finite, so that sums with it do not overflow the clock.
inline constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(24 * 365 * 100);

// What ends the part of this rank in a call that other ranks wait for, when its caller aborts it.
class Abandonable {
 public:
  virtual void GiveUp(const Status& why) = 0;

 protected:
  ~Abandonable() = default;
};

// Interrupt asks the caller of a waiting call whether to abort the call. One thread uses it: the
// thread that makes the call. The longer the call waits, the more rarely it asks, unless a signal
// ends one of its sleeps (NextWake).
class Interrupt {
 public:
  // The shortest time between two questions, since a question may take the Python interpreter's
  // lock.
  static constexpr std::chrono::milliseconds kMinInterval{20};

  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Makes Check call part->GiveUp with the aborted status when the caller aborts the call, which
  // other ranks wait for. Null ends that.
  void OnAbort(Abandonable* part) { part_ = part; }
  // Records that the call waits. The first question follows after kMinInterval, so that a call that
  // does not wait reads no clock.
  void NoteWait(Instant now) {
    if (has_waited()) return;
    began_ = now;
    next_ = now + kMinInterval;
  }
  // Returns when a sleep ends, at the latest, that a signal ends early: after an eighth of the time
  // that the call has waited, within bounds. A sleep that ends before the next question is due
  // (Check) is followed by a shorter one, so that no signal waits for its question.
  Instant NextWake(Instant now) {
    constexpr std::chrono::milliseconds kMaxInterval{500};
    NoteWait(now);
    wake_ = is_early_
                ? next_
                : now + std::clamp<Clock::duration>((now - began_) / 8, kMinInterval, kMaxInterval);
    return wake_;
  }
  bool has_waited() const { return next_ != Instant(); }
  // Returns ok, or aborted with the reason once the caller has aborted the call. An empty reason
  // lets a call that other ranks take part in go on, and fail at its end.
  const Status& Check(Instant now) {
    NoteWait(now);
    is_early_ = now < std::min(next_, wake_);
    if (!status_.ok() || now < next_) return status_;
    next_ = now + kMinInterval;
    const std::optional<std::string> reason = Ask();
    if (!reason.has_value()) return status_;
    if (reason->empty() && part_ != nullptr) {
      fails_at_end_ = true;
      return status_;
    }
    status_ = Status(Code::kAborted, *reason);
    if (part_ != nullptr) part_->GiveUp(status_);
    return status_;
  }
  // Returns the result of the last Check.
  const Status& status() const { return status_; }
  // Returns the result of a call whose body has returned `result`.
  Status ResultOf(const Status& result) const {
    if (!status_.ok()) return status_;
    return fails_at_end_ && result.ok() ? Status(Code::kAborted, "interrupted") : result;
  }

 protected:
  Interrupt() = default;
  ~Interrupt() = default;

 private:
  // Returns the reason for aborting the call, or nothing to continue waiting.
  virtual std::optional<std::string> Ask() = 0;

  Abandonable* part_ = nullptr;
  Instant began_;          // when the call began to wait
  Instant next_;           // when to ask again, or Instant() if the call has not waited
  Instant wake_;           // the end of the last sleep, or Instant() if there was none
  bool is_early_ = false;  // whether the last Check came before both
  Status status_;
  bool fails_at_end_ = false;
};

// An Interrupt that calls `Function` to ask. Every call on a table makes one, so it allocates
// nothing.
template <class Function>
class InterruptOf final : public Interrupt {
 public:
  explicit InterruptOf(Function ask) : ask_(std::move(ask)) {}

 private:
  std::optional<std::string> Ask() override { return ask_(); }

  Function ask_;
};

// How long a call may wait.
struct WaitLimit {
  // The call fails with a timeout after this instant.
  Instant deadline;
  // The end of the slice: a call that still waits then returns pending, since its caller has other
  // work, and the caller calls again.
  Instant slice_end = Instant::max();
  Interrupt* interrupt = nullptr;  // may be null

  // How often a waiting call checks its limit, and whether ranks that it waits for are lost, unless
  // it sleeps until NextWake.
  static constexpr std::chrono::milliseconds kCheckInterval = Interrupt::kMinInterval;

  Instant earliest() const { return std::min(deadline, slice_end); }
  // Returns when a call that waits at `now` has to check next.
  Instant NextCheck(Instant now) const {
    if (interrupt != nullptr) interrupt->NoteWait(now);
    return std::min(earliest(), now + kCheckInterval);
  }
  // The same for a sleep that a signal ends early (SleepOnWord), and a call with an interrupt: the
  // longer it has waited, the later.
  Instant NextWake(Instant now) const {
    return interrupt == nullptr ? NextCheck(now) : std::min(earliest(), interrupt->NextWake(now));
  }
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
