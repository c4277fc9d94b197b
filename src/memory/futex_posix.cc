#include <sched.h>

#include <algorithm>
#include <thread>

#include "memory/futex.h"

namespace multiverso {
namespace {

// POSIX has no wait for a word that several processes map, so a sleeper polls. A sleep is as long
// as a quarter of the wait so far, so that a short wait ends soon and a long wait costs little.
constexpr auto kMinSleep = std::chrono::microseconds(50);
constexpr auto kMaxSleep = std::chrono::milliseconds(1);

}  // namespace

void SleepOnWord(std::atomic<uint32_t>* word, uint32_t expected, Instant until) {
  const Instant start = Clock::now();
  for (Instant now = start; now < until && word->load() == expected; now = Clock::now()) {
    const auto sleep = std::clamp<Clock::duration>((now - start) / 4, kMinSleep, kMaxSleep);
    std::this_thread::sleep_for(std::min<Clock::duration>(sleep, until - now));
  }
}

void WakeWord(std::atomic<uint32_t>* /*word*/, int /*count*/) {}

void YieldCore() { sched_yield(); }

void SleepPrecisely() {}

}  // namespace multiverso
