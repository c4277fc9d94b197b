// Backoff: how long somebody who polls sleeps between two looks.
#ifndef MULTIVERSO_BASE_BACKOFF_H_
#define MULTIVERSO_BASE_BACKOFF_H_

#include <algorithm>

#include "base/clock.h"

namespace multiverso {

// Not at all for a moment, then an eighth of the time that nothing has happened, up to a limit: so
// what comes is seen late by at most an eighth of the time it took to come, and an idle poller
// costs nothing that counts.
class Backoff {
 public:
  // About a round trip between two machines, so that a sequence of calls does not sleep. Where
  // ranks outnumber cores, longer spinning takes the core from the one that is waited for.
  static constexpr std::chrono::microseconds kEager{60};

  explicit Backoff(std::chrono::microseconds longest, Instant since = Clock::now())
      : longest_(longest), since_(since) {}

  // Something has happened.
  void Reset() { since_ = Clock::now(); }

  // Zero: let others run, and look again.
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
