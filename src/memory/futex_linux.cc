#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "memory/futex.h"

namespace multiverso {

bool SleepOnWord(std::atomic<uint32_t>* word, uint32_t expected, Instant until) {
  const int64_t left = std::chrono::nanoseconds(until - Clock::now()).count();
  if (left <= 0) return false;
  // A year is practically forever, and fits a time_t of any size.
  constexpr int64_t kMaxSeconds = int64_t{365} * 24 * 3600;
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(std::min<int64_t>(left / 1000000000, kMaxSeconds));
  timeout.tv_nsec = static_cast<long>(left % 1000000000);  // NOLINT: the type of the field
  // FUTEX_PRIVATE_FLAG must not be set, because the word is in memory that several processes map.
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, expected, &timeout,
                 nullptr, 0) == -1 &&
         errno == EINTR;
}

void WakeWord(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, count, nullptr, nullptr, 0);
}

void YieldCore() { sched_yield(); }

void SleepPrecisely() { prctl(PR_SET_TIMERSLACK, 1UL); }

}  // namespace multiverso
