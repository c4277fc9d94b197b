#include "memory/robust_lock.h"

#include <algorithm>

#include "memory/futex.h"

namespace multiverso {
namespace {

constexpr auto kLivenessCheck = std::chrono::milliseconds(20);
constexpr int kLooks = 100;
constexpr int kYields = 30;

}  // namespace

RobustLock::Outcome RobustLock::TakeSlowly(int owner, const OwnerProbe& probe, Instant until) {
  for (int i = 0; i < kLooks; ++i) {
    CpuRelax();
    if (word.load(std::memory_order_relaxed) == 0 && TryTake(owner)) return Outcome::kTaken;
  }
  for (int i = 0; i < kYields; ++i) {
    YieldCore();
    if (word.load(std::memory_order_relaxed) == 0 && TryTake(owner)) return Outcome::kTaken;
  }
  // From here on this thread takes the lock with the sleepers' bit set. Others may be asleep too,
  // which this thread cannot know, so its release wakes one sleeper, at worst needlessly.
  const uint32_t mine = Mark(owner) | kSleepers;
  for (;;) {
    uint32_t seen = word.load(std::memory_order_relaxed);
    if (seen == 0) {
      if (word.compare_exchange_strong(seen, mine, std::memory_order_acquire)) {
        return Outcome::kTaken;
      }
      continue;
    }
    if ((seen & kSleepers) == 0 &&
        !word.compare_exchange_strong(seen, seen | kSleepers, std::memory_order_relaxed)) {
      continue;
    }
    const uint32_t holder = seen | kSleepers;
    const Instant now = Clock::now();
    if (now >= until) return Outcome::kTimedOut;
    SleepOnWord(&word, holder, std::min(until, now + kLivenessCheck));
    if (word.load(std::memory_order_relaxed) != holder) continue;
    // No holder released the lock in the meantime. If its holder has died, exactly one waiter
    // succeeds in replacing the dead holder's mark with its own.
    const int holder_rank = static_cast<int>(holder & ~kSleepers) - 1;
    if (!probe.IsAlive(holder_rank)) {
      uint32_t expected = holder;
      if (word.compare_exchange_strong(expected, mine, std::memory_order_acquire)) {
        return Outcome::kRecovered;
      }
    }
  }
}

void RobustLock::WakeOne() { WakeWord(&word, 1); }

}  // namespace multiverso
