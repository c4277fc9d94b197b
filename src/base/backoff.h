// How long a polling thread sleeps between two polls (Backoff), a loop that polls (PollUntil), and
// a wait for a mutex with a limit (LockWithin).
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/status.h"

namespace multiverso {

// The sleep is zero at first, then an eighth of the time since the last event, up to a limit. So a
// poller sees an event late by at most an eighth of the time that it has waited, and an idle poller
// has negligible overhead. A poller that may be idle for long can have a second, longer limit, for
// sleeps of a 32nd of that time.
class Backoff {
 public:
  // The time before the first sleep: about a round trip between two machines, so that a sequence of
  // calls does not sleep. Where ranks outnumber cores, more would keep the awaited rank waiting.
  static constexpr std::chrono::microseconds kEager{60};

  explicit Backoff(std::chrono::microseconds longest, Instant since = Clock::now())
      : longest_(longest), longest_idle_(longest), since_(since) {}
  Backoff(std::chrono::microseconds longest, std::chrono::microseconds longest_idle,
          Instant since = Clock::now())
      : longest_(longest), longest_idle_(longest_idle), since_(since) {}

  // Records that an event has happened now.
  void Reset() { since_ = Clock::now(); }

  // Returns the time to sleep. Zero tells the caller to yield the core and poll again.
  std::chrono::microseconds Next(Instant now, std::chrono::microseconds eager = kEager) const {
    const auto idle = std::chrono::duration_cast<std::chrono::microseconds>(now - since_);
    if (idle < eager) return std::chrono::microseconds(0);
    return std::max(std::min(idle / 8, longest_), std::min(idle / 32, longest_idle_));
  }

 private:
  std::chrono::microseconds longest_;
  std::chrono::microseconds longest_idle_;
  Instant since_;
};

// Calls poll() at least once, until it returns another status than pending or `until` has passed.
// Does not sleep for the time `eager` from the beginning of `backoff`. Returns the last status.
template <class Poll>
Status PollUntil(Instant until, const Backoff& backoff, const Poll& poll,
                 std::chrono::microseconds eager = Backoff::kEager) {
  for (;;) {
    const Status status = poll();
    if (!status.pending()) return status;
    const Instant now = Clock::now();
    if (now >= until) return status;
    const auto nap = backoff.Next(now, eager);
    if (nap.count() == 0) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min<Clock::duration>(nap, until - now));
    }
  }
}

// Locks the mutex, unless other threads keep it for longer than `timeout`: then the lock does not
// own it. The wait has slices, of which a suspension of the process ends only one: the other thread
// must have time to go on after it. This does without a timed mutex, which the thread sanitizer of
// GCC 12 does not know.
inline std::unique_lock<std::mutex> LockWithin(std::chrono::milliseconds timeout,
                                               std::mutex* mutex) {
  constexpr int kSlices = 10;
  std::unique_lock<std::mutex> lock(*mutex, std::defer_lock);
  for (int i = 0; i < kSlices && !lock.owns_lock(); ++i) {
    (void)PollUntil(Clock::now() + timeout / kSlices, Backoff(std::chrono::milliseconds(1)),
                    [&] { return lock.try_lock() ? Status::Ok() : Status::Pending(); });
  }
  return lock;
}

}  // namespace multiverso
