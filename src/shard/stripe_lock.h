// StripeLock: the lock of a stripe, with counters that let short reads skip the lock, and with the
// version of the stripe's last change.
//
// Writers hold the lock and make `sequence` odd while they write. A reader that finds the same even
// number before and after its copy has read a consistent state; otherwise the reader repeats the
// read under the lock. So short reads do not exclude each other and write to no shared cache line.
// This is a sequence lock with the memory ordering of H.-J. Boehm, "Can Seqlocks Get Along With
// Programming Language Memory Models?", MSPC 2012.
//
// A writer notes the shard's version plus 1 in the stripe after it has taken the lock. A
// thread that raises the shard's version and then finds the lock free knows that later changes note
// more than the new version, and that earlier changes have noted theirs.
#pragma once

#include <atomic>
#include <cstdint>

#include "memory/robust_lock.h"

namespace multiverso {

// Fills a cache line. Zero-filled memory of a new segment is an array of free locks.
struct alignas(64) StripeLock : RobustLock {
  std::atomic<uint32_t> sequence{0};
  // The shard's version at the last change, plus 1; 0 before the first change.
  std::atomic<uint64_t> changed_at{0};
  // Whether the disk has room for this stripe and those after it that are reserved with it. Used
  // only in the first of them (DiskRows).
  std::atomic<uint32_t> has_room{0};

  // The holder calls BeginWrite and EndWrite around its writes. A holder that dies in between
  // leaves the sequence odd, which forces readers to take the lock until the next writer makes the
  // sequence even.
  void BeginWrite(const std::atomic<uint64_t>& version) {
    sequence.store(sequence.load(std::memory_order_relaxed) | 1U, std::memory_order_relaxed);
    changed_at.store(version.load(std::memory_order_seq_cst) + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
  void EndWrite() {
    sequence.store(sequence.load(std::memory_order_relaxed) + 1U, std::memory_order_release);
  }
  // Notes a change by a writer without the lock, in sync mode. There, `version` changes only
  // between two rounds, so this mostly reads.
  void NoteChange(const std::atomic<uint64_t>& version) {
    const uint64_t now = version.load(std::memory_order_relaxed) + 1;
    if (changed_at.load(std::memory_order_relaxed) < now) {
      changed_at.store(now, std::memory_order_relaxed);
    }
  }

  // Returns whether no holder of the lock changes the stripe, so `changed_at` is that of the last
  // change.
  bool IsAtRest() const {
    return word.load(std::memory_order_seq_cst) == 0 &&
           (sequence.load(std::memory_order_relaxed) & 1U) == 0;
  }

  // Runs read() without the lock. Returns false if a writer interfered, in which case the data that
  // was read is worthless. ThreadSanitizer would report such reads as data races, so under
  // ThreadSanitizer this function returns false, and the reader takes the lock. The simulation
  // (tests/sim) is compiled for ThreadSanitizer, but runs without it.
  template <class Read>
  bool ReadUnlocked(Read read) const {
    const uint32_t begun = BeginRead();
    if (!MayRead(begun)) return false;
    read();
    return EndRead(begun);
  }
  // What BeginRead returns while a writer changes the stripe, or another odd number.
  static constexpr uint32_t kBeingChanged = 1;
  // Begins a read without the lock, for a caller that reads from several stripes at the same time.
  // The read is useless unless MayRead accepts what this returns, and EndRead accepts it
  // afterwards.
  uint32_t BeginRead() const {
#if defined(__SANITIZE_THREAD__) && !defined(MULTIVERSO_SIMULATION)
    return kBeingChanged;
#else
    return sequence.load(std::memory_order_acquire);
#endif
  }
  static bool MayRead(uint32_t begun) { return (begun & 1U) == 0; }
  // Returns whether no writer has interfered since BeginRead returned `begun`.
  bool EndRead(uint32_t begun) const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return MayRead(begun) && sequence.load(std::memory_order_relaxed) == begun;
  }
};

enum StripeUse { kReading, kWriting };

// Releases a stripe's lock, which the caller has taken, at the end of the guard's scope.
template <StripeUse kUse>
class StripeGuard {
 public:
  // `version` is that of the shard.
  StripeGuard(StripeLock* lock, const std::atomic<uint64_t>& version) : lock_(lock) {
    if (kUse == kWriting) lock_->BeginWrite(version);
  }
  ~StripeGuard() {
    if (kUse == kWriting) lock_->EndWrite();
    lock_->Release();
  }
  StripeGuard(const StripeGuard&) = delete;
  StripeGuard& operator=(const StripeGuard&) = delete;

 private:
  StripeLock* lock_;
};

static_assert(sizeof(StripeLock) == 64, "one cache line per stripe");

}  // namespace multiverso
