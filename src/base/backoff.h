// Backoff tells how long a poller sleeps between two looks. PollUntil polls with a Backoff.
#ifndef MULTIVERSO_BASE_BACKOFF_H_
#define MULTIVERSO_BASE_BACKOFF_H_

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/status.h"

namespace multiverso {

// The sleep is zero at first, then an eighth of the time since the last event, up to a limit. So a
// poller sees an event late by at most an eighth of the time it waited, and an idle poller has
// negligible overhead.
class Backoff {
 public:
  // About a round trip between two machines, so that a sequence of calls does not sleep. Where
  // ranks outnumber cores, longer spinning would take the core from the awaited rank.
  static constexpr std::chrono::microseconds kEager{60};

  explicit Backoff(std::chrono::microseconds longest, Instant since = Clock::now())
      : longest_(longest), since_(since) {}

  // Records that an event has happened now.
  void Reset() { since_ = Clock::now(); }

  // Returns the time to sleep. Zero tells the caller to yield the core and look again.
  std::chrono::microseconds Next(Instant now, std::chrono::microseconds eager = kEager) const {
    const auto idle = std::chrono::duration_cast<std::chrono::microseconds>(now - since_);
    if (idle < eager) return std::chrono::microseconds(0);
    return std::min(idle / 8, longest_);
  }

 private:
  std::chrono::microseconds longest_;
  Instant since_;
};

// Calls look() at least once, until its status is not pending or `until` has passed. Returns the
// last status.
template <class Look>
Status PollUntil(Instant until, const Backoff& backoff, const Look& look) {
  for (;;) {
    const Status status = look();
    if (!status.pending()) return status;
    const Instant now = Clock::now();
    if (now >= until) return status;
    const auto nap = backoff.Next(now);
    if (nap.count() == 0) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min<Clock::duration>(nap, until - now));
    }
  }
}

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_BACKOFF_H_
