// How long tests let a call wait.
#ifndef MULTIVERSO_TESTS_SUPPORT_LIMITS_H_
#define MULTIVERSO_TESTS_SUPPORT_LIMITS_H_

#include <optional>
#include <string>

#include "base/clock.h"
#include "support/processes.h"

namespace multiverso::testing {

// Until the end of the call, which every test expects.
inline WaitLimit Patiently() { return WaitLimit::For(kPatience); }

// A call that would have to wait returns pending.
inline WaitLimit WithoutWaiting() { return WaitLimit{Instant::max(), Instant::min()}; }

// A deadline that is meant to pass.
inline WaitLimit Shortly() { return WaitLimit::For(std::chrono::milliseconds(20)); }

// An interrupt that gives the call up as soon as `condition` holds.
template <class Condition>
Interrupt InterruptWhen(Condition condition, const std::string& reason = "KeyboardInterrupt") {
  return Interrupt([condition, reason] {
    return condition() ? std::optional<std::string>(reason) : std::nullopt;
  });
}
inline Interrupt InterruptAtOnce() {
  return InterruptWhen([] { return true; });
}

}  // namespace multiverso::testing

#endif  // MULTIVERSO_TESTS_SUPPORT_LIMITS_H_
