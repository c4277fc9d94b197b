#include "memory/robust_lock.h"

#include <algorithm>

#include "memory/futex.h"

namespace multiverso {
namespace {

// A lock is usually held for microseconds, so most waits end while the waiter polls.
constexpr SpinPolicy kSpinPolicy{100, 30};

}  // namespace

RobustLock::Outcome RobustLock::TakeSlowly(int owner, const OwnerProbe& probe, Instant until) {
  const auto try_take = [&] { return word.load(std::memory_order_relaxed) == 0 && TryTake(owner); };
  if (SpinUntil(try_take, kSpinPolicy)) return Outcome::kTaken;
  // From here on this thread takes the lock with the sleepers' bit set, since it cannot know
  // whether other threads sleep. So its release wakes one sleeper, at worst needlessly.
  const uint32_t own_mark = Mark(owner) | kSleepers;
  for (;;) {
    uint32_t seen = word.load(std::memory_order_relaxed);
    if (seen == 0) {
      if (word.compare_exchange_strong(seen, own_mark, std::memory_order_seq_cst)) {
        return Outcome::kTaken;
      }
      continue;
    }
    if ((seen & kSleepers) == 0 &&
        !word.compare_exchange_strong(seen, seen | kSleepers, std::memory_order_relaxed)) {
      continue;
    }
    const uint32_t held = seen | kSleepers;
    const Instant now = Clock::now();
    if (now >= until) return Outcome::kTimedOut;
    (void)SleepOnWord(&word, held, std::min(until, now + WaitLimit::kCheckInterval));
    if (word.load(std::memory_order_relaxed) != held) continue;
    // The word names the same holder as before the sleep. If the holder has died, exactly one
    // waiter succeeds in replacing the dead holder's mark with its own.
    const int holder = static_cast<int>(held & ~kSleepers) - 1;
    if (!probe.IsAlive(holder)) {
      uint32_t expected = held;
      if (word.compare_exchange_strong(expected, own_mark, std::memory_order_seq_cst)) {
        return Outcome::kRecovered;
      }
    }
  }
}

void RobustLock::WakeOne() { WakeWord(&word, 1); }

}  // namespace multiverso
