// Sleeping on a word of shared memory, and waking who sleeps there. The one place that knows the
// platform's call for it.
#ifndef MULTIVERSO_MEMORY_FUTEX_H_
#define MULTIVERSO_MEMORY_FUTEX_H_

#include <atomic>
#include <cstdint>
#if defined(_MSC_VER)
#include <intrin.h>
#endif

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
#elif defined(_M_X64)
  _mm_pause();
#endif
}

// Gives the core to another runnable thread, if there is one.
void YieldCore();

// How long to look for something that others make true before going to sleep. Most waits here are
// short, and going to sleep and being woken costs tens of microseconds; but with more ranks than
// cores the one that is waited for must get its turn.
struct SpinPolicy {
  int looks;   // at the word alone
  int yields;  // then, giving the core away in between
};
// Where everybody who may be waited for has a core.
constexpr SpinPolicy kOwnCore{200, 200};
// Where some share one, and run the sooner the sooner it is given to them. Yielding is tried a few
// times only: the scheduler may not hand the core to a process of another session.
constexpr SpinPolicy kSharedCore{4, 8};

// Looks whether done() is true for as long as a short wait takes.
template <class Done>
bool SpinUntil(Done done, const SpinPolicy& spin_policy = kOwnCore) {
  for (int i = 0; i < spin_policy.looks; ++i) {
    if (done()) return true;
    CpuRelax();
  }
  for (int i = 0; i < spin_policy.yields; ++i) {
    if (done()) return true;
    YieldCore();
  }
  return false;
}

// Sleeps on `word` until done() is true, at most until `until`; true if it is. Whoever makes it
// true then calls WakeSleepers, or changes the word and wakes it.
template <class Done>
bool SleepUntil(std::atomic<uint32_t>* word, std::atomic<uint32_t>* sleepers, Instant until,
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
bool WaitForWord(std::atomic<uint32_t>* word, std::atomic<uint32_t>* sleepers, Instant until,
                 Done done, const SpinPolicy& spin_policy = kOwnCore) {
  return SpinUntil(done, spin_policy) || SleepUntil(word, sleepers, until, done);
}

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_FUTEX_H_
