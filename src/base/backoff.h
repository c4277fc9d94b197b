// Backoff: how long a polling thread sleeps between two polls.
#ifndef MULTIVERSO_BASE_BACKOFF_H_
#define MULTIVERSO_BASE_BACKOFF_H_

#include <algorithm>

#include "base/clock.h"

namespace multiverso {

// It does not sleep at first, and then for an eighth of the idle time so far, up to a limit. So an
// event is noticed late by at most an eighth of the time it took to happen, and an idle poller has
// negligible overhead.
class Backoff {
 public:
  // About a round trip between two machines, so that a sequence of calls does not sleep. If ranks
  // outnumber cores, longer spinning takes the core from the rank that is waited for.
  static constexpr std::chrono::microseconds kEager{60};

  explicit Backoff(std::chrono::microseconds longest, Instant since = Clock::now())
      : longest_(longest), since_(since) {}

  // To be called after an event.
  void Reset() { since_ = Clock::now(); }

  // Zero means: yield the core and poll again.
  std::chrono::microseconds Next(Instant now, std::chrono::microseconds eager = kEager) const {
    const auto idle = std::chrono::duration_cast<std::chrono::microseconds>(now - since_);
    if (idle < eager) return std::chrono::microseconds(0);
    return std::min(idle / 8, longest_);
  }

 private:
  std::chrono::microseconds longest_;
  Instant since_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_BACKOFF_H_
