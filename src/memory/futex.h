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

// Gives the core to another runnable thread, if there is one.
void YieldCore();

// Looks whether done() is true for as long as a short wait takes. Most waits here are short, and
// going to sleep and being woken costs tens of microseconds; but with more ranks than cores the
// one that is waited for must get its turn.
template <class Done>
bool LookFor(Done done) {
  constexpr int kLooks = 200;
  constexpr int kYields = 200;
  for (int i = 0; i < kLooks; ++i) {
    if (done()) return true;
    CpuRelax();
  }
  for (int i = 0; i < kYields; ++i) {
    if (done()) return true;
    YieldCore();
  }
  return false;
}

// Sleeps on `word` until done() is true, at most until `until`; true if it is. Whoever makes it
// true then calls WakeSleepers, or changes the word and wakes it.
template <class Done>
bool SleepFor(std::atomic<uint32_t>* word, std::atomic<uint32_t>* sleepers, Instant until,
              Done done) {
  for (;;) {
    // Sleepers are counted before the condition is looked at, and the word read before it: either
    // the other side sees that somebody sleeps, or this side sees what it did.
    sleepers->fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const uint32_t seen = word->load(std::memory_order_seq_cst);
    const bool is_done = done();
    const bool is_over = !is_done && Clock::now() >= until;
    if (!is_done && !is_over) SleepOnWord(word, seen, until);
    sleepers->fetch_sub(1, std::memory_order_seq_cst);
    if (is_done || is_over) return is_done;
  }
}

// Called after what others may be waiting for has been made true. Touches the word, and makes a
// system call, only if somebody sleeps.
inline void WakeSleepers(std::atomic<uint32_t>* word, const std::atomic<uint32_t>& sleepers) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) == 0) return;
  word->fetch_add(1, std::memory_order_seq_cst);
  WakeWord(word, kWakeAll);
}

// First one, then the other.
template <class Done>
bool AwaitWord(std::atomic<uint32_t>* word, std::atomic<uint32_t>* sleepers, Instant until,
               Done done) {
  return LookFor(done) || SleepFor(word, sleepers, until, done);
}

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_FUTEX_H_
