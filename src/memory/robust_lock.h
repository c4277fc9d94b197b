// RobustLock: mutual exclusion between the ranks of a node, for memory that they share. The lock
// survives the death of its holder.
//
// The lock is one 32-bit word: 0 when free, otherwise the holder (its local rank plus 1) and a bit
// that marks sleepers. Taking a free lock is one compare-and-swap and releasing it one exchange, so
// a lock per row access is affordable; a pthread robust mutex costs several times as much.
// Robustness costs nothing until a wait takes long: a waiter that has slept for 20 ms asks the
// OwnerProbe whether the holder's process still exists, and takes the lock over if not.
//
// An owner is a process, not a thread. Threads of one rank exclude each other as ranks do, and no
// thread of this library ends while it holds a lock, because a waiter could not notice that.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/status.h"

namespace multiverso {

// Tells whether the process of a lock's owner is alive.
class OwnerProbe {
 public:
  virtual ~OwnerProbe() = default;
  virtual bool IsAlive(int owner) const = 0;
  // Returns an error if no call may wait for that owner any longer, although its process is alive.
  virtual Status CheckWait(int /*owner*/) const { return Status::Ok(); }
};

// A free lock is zero, so new memory of a segment is an array of free locks.
struct RobustLock {
  std::atomic<uint32_t> word{0};

  enum class Outcome {
    kTaken,
    kRecovered,  // taken from a dead holder; the protected data may be half written
    kTimedOut,   // not taken
  };

  bool TryTake(int owner) {
    uint32_t expected = 0;
    // Sequentially consistent for StripeLock::BeginWrite, which costs x86-64 nothing.
    return word.compare_exchange_strong(expected, Mark(owner), std::memory_order_seq_cst,
                                        std::memory_order_relaxed);
  }

  Outcome Take(int owner, const OwnerProbe& probe, Instant until) {
    return TryTake(owner) ? Outcome::kTaken : TakeSlowly(owner, probe, until);
  }

  void Release() {
    if ((word.exchange(0, std::memory_order_release) & kSleepers) != 0) WakeOne();
  }

  // Returns the holder's local rank, or -1 if the lock is free. The holder may change at any time,
  // so the result is good only for messages.
  int Holder() const {
    return static_cast<int>(word.load(std::memory_order_relaxed) & ~kSleepers) - 1;
  }

 private:
  static constexpr uint32_t kSleepers = 1U << 31;
  static uint32_t Mark(int owner) { return static_cast<uint32_t>(owner) + 1; }

  Outcome TakeSlowly(int owner, const OwnerProbe& probe, Instant until);
  void WakeOne();
};

}  // namespace multiverso
