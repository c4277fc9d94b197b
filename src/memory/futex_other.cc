#include <algorithm>
#include <thread>

#include "memory/futex.h"

namespace multiverso {
namespace {

// Only Linux lets threads of several processes wait for a word, so a sleeper polls. A sleep takes a
// quarter of the time since the wait began: a short wait ends soon, and a long wait costs little.
constexpr auto kMinSleep = std::chrono::microseconds(50);
constexpr auto kMaxSleep = std::chrono::milliseconds(1);
// A sleep of the standard library goes on after a signal, so the caller looks after this time.
constexpr auto kUnsignaled = std::chrono::milliseconds(20);

}  // namespace

bool SleepOnWord(std::atomic<uint32_t>* word, uint32_t expected, Instant until) {
  const Instant start = Clock::now();
  const bool is_long = until - start > kUnsignaled;
  if (is_long) until = start + kUnsignaled;
  for (Instant now = start; now < until && word->load() == expected; now = Clock::now()) {
    const auto sleep = std::clamp<Clock::duration>((now - start) / 4, kMinSleep, kMaxSleep);
    std::this_thread::sleep_for(std::min<Clock::duration>(sleep, until - now));
  }
  return is_long && word->load() == expected;
}

void WakeWord(std::atomic<uint32_t>* /*word*/, int /*count*/) {}

void YieldCore() { std::this_thread::yield(); }

void SleepPrecisely() {}

}  // namespace multiverso
