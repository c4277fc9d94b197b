// Sleeping on a word of shared memory, and waking who sleeps there. The one place that knows the
// platform's call for it.
#ifndef MULTIVERSO_MEMORY_FUTEX_H_
#define MULTIVERSO_MEMORY_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace multiverso {

static_assert(std::atomic<uint32_t>::is_always_lock_free, "words are shared between processes");

// Sleeps while *word == expected, at most until `until`. May return early for any reason (a wake,
// a signal): the caller looks at its condition again.
void SleepOnWord(std::atomic<uint32_t>* word, uint32_t expected, Instant until);

// Wakes up to `count` sleepers of any process.
void WakeWord(std::atomic<uint32_t>* word, int count);
constexpr int kWakeAll = 1 << 30;

// Lets the other hardware thread of this core go first.
inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until done() is true, at most until `until`; true if it is. Looks at it for a moment,
// lets other processes run for a moment (there may be more ranks than cores), then sleeps on
// `word`, which whoever makes done() true must change and wake.
template <class Done>
bool AwaitWord(std::atomic<uint32_t>* word, Instant until, Done done);

// Gives the core to another runnable thread, if there is one.
void YieldCore();

template <class Done>
bool AwaitWord(std::atomic<uint32_t>* word, Instant until, Done done) {
  constexpr int kLooks = 64;
  constexpr int kYields = 64;
  for (int i = 0; i < kLooks; ++i) {
    if (done()) return true;
    CpuRelax();
  }
  for (int i = 0; i < kYields; ++i) {
    if (done()) return true;
    YieldCore();
  }
  for (;;) {
    // Read the word before the condition: a change between the two makes the sleep return at once.
    const uint32_t seen = word->load(std::memory_order_seq_cst);
    if (done()) return true;
    if (Clock::now() >= until) return false;
    SleepOnWord(word, seen, until);
  }
}

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_FUTEX_H_
