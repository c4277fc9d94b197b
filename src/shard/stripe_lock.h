// StripeLock: the lock of a stripe, with a version that lets short reads skip the lock.
//
// Writers hold the lock and make the version odd while they write. A reader that finds the same
// even version before and after its copy has read a consistent state; otherwise the reader repeats
// the read under the lock. So short reads do not exclude each other and write to no shared cache
// line. This is a sequence lock with the memory ordering of H.-J. Boehm, "Can Seqlocks Get Along
// With Programming Language Memory Models?", MSPC 2012.
#ifndef MULTIVERSO_SHARD_STRIPE_LOCK_H_
#define MULTIVERSO_SHARD_STRIPE_LOCK_H_

#include <atomic>
#include <cstdint>

#include "memory/robust_lock.h"

namespace multiverso {

// Fills a cache line. Zero-filled memory of a new segment is an array of free locks.
struct alignas(64) StripeLock : RobustLock {
  std::atomic<uint32_t> version{0};

  // The holder calls BeginWrite and EndWrite around its writes. A holder that dies in between
  // leaves the version odd, which forces readers to take the lock until the next writer makes the
  // version even.
  void BeginWrite() {
    version.store(version.load(std::memory_order_relaxed) | 1U, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
  void EndWrite() {
    version.store(version.load(std::memory_order_relaxed) + 1U, std::memory_order_release);
  }

  // Runs read() without the lock. Returns false if a writer interfered, in which case the data that
  // was read is worthless. ThreadSanitizer would report such reads as data races, so under
  // ThreadSanitizer this function returns false, and the reader takes the lock.
  template <class Read>
  bool ReadUnlocked(Read read) const {
#if defined(__SANITIZE_THREAD__)
    (void)read;
    return false;
#else
    const uint32_t before = version.load(std::memory_order_acquire);
    if ((before & 1U) != 0) return false;
    read();
    std::atomic_thread_fence(std::memory_order_acquire);
    return version.load(std::memory_order_relaxed) == before;
#endif
  }
};

// Encloses writes by the holder of the lock.
class StripeWrite {
 public:
  explicit StripeWrite(StripeLock* lock) : lock_(lock) { lock_->BeginWrite(); }
  ~StripeWrite() { lock_->EndWrite(); }
  StripeWrite(const StripeWrite&) = delete;
  StripeWrite& operator=(const StripeWrite&) = delete;

 private:
  StripeLock* lock_;
};

enum class StripeUse { kReading, kWriting };

// Releases a stripe's lock, which the caller has taken, at the end of the guard's scope.
template <StripeUse kUse>
class StripeGuard {
 public:
  explicit StripeGuard(StripeLock* lock) : lock_(lock) {
    if (kUse == StripeUse::kWriting) lock_->BeginWrite();
  }
  ~StripeGuard() {
    if (kUse == StripeUse::kWriting) lock_->EndWrite();
    lock_->Leave();
  }
  StripeGuard(const StripeGuard&) = delete;
  StripeGuard& operator=(const StripeGuard&) = delete;

 private:
  StripeLock* lock_;
};

static_assert(sizeof(StripeLock) == 64, "one cache line per stripe");

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_STRIPE_LOCK_H_
