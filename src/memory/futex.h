// Futexes: waiting for a change of a word of shared memory, first by polling, then asleep.
// Only futex_linux.cc and futex_other.cc make the system calls.
#pragma once

#include <atomic>
#include <cstdint>
#if defined(_MSC_VER)
#include <intrin.h>
#endif

#include "base/clock.h"

namespace multiverso {

static_assert(std::atomic<uint32_t>::is_always_lock_free, "words are shared between processes");

// Sleeps while *word == expected, at most until `until`. May return early for any reason, so the
// caller checks its condition again. Returns whether a signal may have ended the sleep.
bool SleepOnWord(std::atomic<uint32_t>* word, uint32_t expected, Instant until);

// Wakes up to `count` sleepers of any process. On systems other than Linux, all sleepers wake up by
// themselves at least every millisecond.
void WakeWord(std::atomic<uint32_t>* word, int count);
constexpr int kWakeAll = 1 << 30;

// Yields execution resources to the other hardware thread of this core.
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

// Makes the sleeps of this thread end on time. Linux otherwise prolongs each by up to 50 us, in
// order to end several sleeps at once.
void SleepPrecisely();

// How long to poll for a condition before the first sleep of a wait. Most waits are short, and a
// sleep with its wake-up costs tens of microseconds. With more ranks than cores, though, polling
// keeps the awaited rank from running.
struct SpinPolicy {
  int relaxed_polls;   // polls between which the thread keeps its core
  int yielding_polls;  // further polls, between which the thread offers its core
};
// The policy of waits in which every rank has a core of its own.
constexpr SpinPolicy kOwnCore{200, 200};
// The policy of waits in which ranks share cores: the awaited rank runs sooner if others sleep.
// The waiting rank yields only a few times, because the scheduler may prefer another process.
constexpr SpinPolicy kSharedCore{4, 8};

// Polls done() for about as long as a short wait takes. Returns whether done() became true.
template <class Done>
bool SpinUntil(Done done, const SpinPolicy& spin_policy = kOwnCore) {
  for (int i = 0; i < spin_policy.relaxed_polls; ++i) {
    if (done()) return true;
    CpuRelax();
  }
  for (int i = 0; i < spin_policy.yielding_polls; ++i) {
    if (done()) return true;
    YieldCore();
  }
  return false;
}

// Sleeps on `word` until done() is true, at most until `until` or a signal. Returns done(). The
// thread that makes done() true then calls WakeSleepers, or itself changes the word and calls
// WakeWord.
template <class Done>
bool SleepUntil(std::atomic<uint32_t>* word, std::atomic<uint32_t>* sleepers, Instant until,
                Done done) {
  for (;;) {
    // This thread raises the sleeper count and reads the word before it checks the condition. So
    // either the waking thread sees a sleeper, or this thread sees the waking thread's change.
    sleepers->fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const uint32_t seen = word->load(std::memory_order_seq_cst);
    const bool is_done = done();
    const bool is_over = !is_done && Clock::now() >= until;
    const bool is_signaled = !is_done && !is_over && SleepOnWord(word, seen, until);
    sleepers->fetch_sub(1, std::memory_order_seq_cst);
    if (is_done || is_over) return is_done;
    if (is_signaled) return done();
  }
}

// Call this after a condition that others may wait for has become true. The function touches the
// word and makes a system call only if there are sleepers.
inline void WakeSleepers(std::atomic<uint32_t>* word, const std::atomic<uint32_t>& sleepers) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) == 0) return;
  word->fetch_add(1, std::memory_order_seq_cst);
  WakeWord(word, kWakeAll);
}

}  // namespace multiverso
