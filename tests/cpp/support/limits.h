// How long tests let a call wait.
#ifndef MULTIVERSO_TESTS_SUPPORT_LIMITS_H_
#define MULTIVERSO_TESTS_SUPPORT_LIMITS_H_

#include "base/clock.h"
#include "support/processes.h"

namespace multiverso::testing {

// To its end, which every test expects to come.
inline WaitLimit Patiently() { return WaitLimit::For(kPatience); }

// Not at all: what cannot be done at once is pending.
inline WaitLimit WithoutWaiting() { return WaitLimit{Instant::max(), Instant::min()}; }

// To a deadline that is meant to pass.
inline WaitLimit Shortly() { return WaitLimit::For(std::chrono::milliseconds(20)); }

}  // namespace multiverso::testing

#endif  // MULTIVERSO_TESTS_SUPPORT_LIMITS_H_
