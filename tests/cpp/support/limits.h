// Limits on the waits of calls.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "support/processes.h"

namespace multiverso::testing {

// The limit of calls that are expected to complete.
inline WaitLimit Patiently() { return WaitLimit::For(kPatience); }

// Makes a call that would have to wait return pending.
inline WaitLimit WithoutWaiting() { return WaitLimit{Instant::max(), Instant::min()}; }

// The limit of waits that are expected to reach their deadline.
inline WaitLimit Shortly() { return WaitLimit::For(std::chrono::milliseconds(20)); }

// Aborts the call as soon as `condition` holds.
template <class Condition>
auto InterruptWhen(Condition condition, const std::string& reason = "KeyboardInterrupt") {
  return InterruptOf([condition, reason] {
    return condition() ? std::optional<std::string>(reason) : std::nullopt;
  });
}
inline auto InterruptAtOnce() {
  return InterruptWhen([] { return true; });
}

}  // namespace multiverso::testing
