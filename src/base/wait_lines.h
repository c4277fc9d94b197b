// WaitLines: when a wait is worth a line in the log, and what such lines and timeouts say about the
// limit of the wait.
#pragma once

#include <chrono>
#include <string>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/text.h"

namespace multiverso {

// The options of a session that limit waits, as messages name them.
inline constexpr char kTimeoutOption[] = "timeout=";
inline constexpr char kStartTimeoutOption[] = "start_timeout=";

// Returns how a timeout says which option sets the limit.
inline std::string LimitAdvice(const char* option = kTimeoutOption) {
  return StrCat("; ", option, " of init sets how long ranks wait");
}

// Returns how a line about a wait that goes on says what limit it has, and which option sets it.
inline std::string LimitText(std::chrono::nanoseconds limit, const char* option = kTimeoutOption) {
  const double seconds = std::chrono::duration<double>(limit).count();
  return StrCat("; it waits ",
                limit < kNoLimit / 2 ? StrCat("for up to ", TimeText(seconds)) : "without a limit",
                ", which ", option, " of init sets");
}

class WaitLines {
 public:
  static constexpr std::chrono::seconds kFirst{10};  // after the begin of a wait
  static constexpr std::chrono::seconds kEvery{30};

  explicit WaitLines(Instant began = Clock::now()) : next_(began + kFirst) {}

  bool IsDue(Instant now) {
    if (MV_FAILPOINT("wait.line")) next_ = now;
    return now >= next_;
  }
  void Postpone(Instant now, std::chrono::seconds time = kEvery) { next_ = now + time; }
  Instant next() const { return next_; }

 private:
  Instant next_;
};

}  // namespace multiverso
