// SumSink: where the sums of a node go.
//
// Of a table, the sum of the node's part goes to a shard, whose updater applies it, and the results
// of the other parts go to the node's copy of the table. Of an array, both replace its elements.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/copy_bytes.h"
#include "node/flight_recorder.h"
#include "shard/shard.h"

namespace multiverso {

// One thread at a time uses a sink.
struct SumSink {
  int64_t element_bytes = 0;
  // Returns where an element of the copy or of the array is. Those of a piece are adjacent.
  std::function<char*(int64_t element)> at;

  // ---- Of a table
  Shard* shard = nullptr;
  int64_t first_element = 0;               // of the shard
  std::atomic<uint64_t>* begun = nullptr;  // rounds whose changes of this node's memory have begun
  FlightRecorder* recorder = nullptr;
  int64_t table = 0;
  std::vector<char> scratch{};  // for new values that nobody receives

  // Called before the first change in that round.
  void BeginChange(uint64_t round) const {
    if (begun == nullptr || begun->load(std::memory_order_relaxed) > round) return;
    begun->store(round + 1, std::memory_order_relaxed);
    // A reader that sees a change of this round must also see `begun`, so that it reads again.
    std::atomic_thread_fence(std::memory_order_release);
  }
  // Applies the sum of `terms` deltas to values of this node's part. `out`, if not null, receives
  // the new values.
  void Apply(int64_t element, int64_t count, const char* sum, int64_t terms, char* out) {
    if (shard != nullptr) {
      return shard->Apply(element - first_element, sum, terms, out, count, scratch.data());
    }
    Store(element, count, sum);
    if (out != nullptr) CopyBytes(out, sum, static_cast<size_t>(count * element_bytes));
  }
  // Stores new values of another node's part, or, if results travel encoded, of any part.
  void Store(int64_t element, int64_t count, const char* values) const {
    CopyBytes(at(element), values, static_cast<size_t>(count * element_bytes));
  }
  void CountMessages(const MessageCounts& counts) const {
    if (recorder != nullptr) recorder->CountMessages(table, counts);
  }
};

}  // namespace multiverso
