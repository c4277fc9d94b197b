// JoinedRanks: how many ranks have joined an elastic session, and whether the last one has left it.
#pragma once

#include <atomic>
#include <cstdint>

namespace multiverso {

// Both are in one word, so that no rank joins a session while its last rank decides to end it.
class JoinedRanks {
 public:
  int count() const { return word_.load(std::memory_order_acquire) & ~kOver; }
  void Start(int count) { word_.store(count); }
  // Counts that rank, which is the next. One rank at a time joins. Returns false if the session is
  // over.
  bool Add(int rank) {
    int32_t before = rank;
    return word_.compare_exchange_strong(before, rank + 1);
  }
  // Ends the session, in which none of `count` ranks remains. Returns false if another rank has
  // joined it or ended it meanwhile.
  bool End(int count) {
    int32_t before = count;
    return word_.compare_exchange_strong(before, count | kOver);
  }

 private:
  static constexpr int32_t kOver = 1 << 30;
  std::atomic<int32_t> word_;
};

}  // namespace multiverso
