// BackgroundQueue: the background calls of one table.
//
// A thread makes the calls one after the other, in the order in which they were started. Each table
// has its own thread, because a call may wait for other ranks, whose threads may wait for a call of
// this rank on another table.
//
// Every failure is reported once: to a thread that waits for the call, or else to the next flush.
// Each call keeps its table in use. So a table that is freed waits for its calls, and the session's
// next collective call reports the failure that nobody has waited for (CloseTable in registry.cc).
//
// A wait for calls ends with a timeout if none ends for longer than any call may take. A call in
// flight thus fails before a wait for the call does, and its failure names the late rank.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/status.h"

namespace multiverso::c_api {

// A BackgroundQueue is thread-safe.
class BackgroundQueue {
 public:
  // A call that has been started. The queue's mutex protects it.
  class Call {
    friend class BackgroundQueue;

    std::function<Status()> body;
    int64_t bytes = 0;
    bool is_done = false;
    bool is_reported = false;
    Status status;
  };

  // `timeout` is the longest time that one call takes.
  explicit BackgroundQueue(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  // No call may be in flight.
  ~BackgroundQueue();
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  bool IsIdle() const { return in_flight_.load(std::memory_order_acquire) == 0; }
  // Waits until the calls in flight leave room for `bytes` bytes of arguments.
  Status WaitForRoom(int64_t bytes, const WaitLimit& limit);
  // Starts a call, whose arguments take `bytes` bytes. `body` owns them, and is destroyed, with
  // what it keeps in use, before the call counts as ended. Returns MemoryError if no thread can
  // start.
  Result<std::shared_ptr<Call>> Start(int64_t bytes, std::function<Status()> body);
  bool HasEnded(const Call& call);
  // Waits until the call has ended, and returns its result. Sets *done to whether it has ended.
  Status WaitFor(const std::shared_ptr<Call>& call, const WaitLimit& limit, int32_t* done);
  // Waits until no call is in flight.
  Status Drain(const WaitLimit& limit);
  // Waits until no call is in flight, and returns the first failure that has not been reported.
  Status Flush(const WaitLimit& limit);

 private:
  // The most bytes of arguments of the calls in flight, if there are several.
  static constexpr int64_t kMostBytes = int64_t{256} << 20;
  // A call counts as at least so many bytes, which limits the number of small calls and of gets.
  static constexpr int64_t kLeastBytes = int64_t{16} << 10;

  // Returns whether a call with that many bytes may start; `mutex_` is locked.
  bool Fits(int64_t bytes) const {
    return calls_.empty() || bytes_ + std::max(bytes, kLeastBytes) <= kMostBytes;
  }

  // Waits until `is_over`, which is called with the mutex locked.
  template <class IsOver>
  Status Wait(std::unique_lock<std::mutex>* lock, const WaitLimit& limit, IsOver is_over);
  void MakeCalls();

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Call>> calls_;   // in flight; the first one is being made
  std::deque<std::shared_ptr<Call>> failed_;  // calls whose failures nobody may have seen
  std::atomic<int64_t> in_flight_{0};
  int64_t bytes_ = 0;      // of the calls in flight
  Instant call_began_at_;  // when the first call in flight began
  bool is_closing_ = false;
  std::thread thread_;  // runs from the first call on
};

}  // namespace multiverso::c_api
