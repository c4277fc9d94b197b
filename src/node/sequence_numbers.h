// SequenceNumbers: numbers this rank's requests to other nodes, for the RequestLogs there.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "node/request_log.h"

namespace multiverso {

// Thread-safe.
class SequenceNumbers {
 public:
  explicit SequenceNumbers(int num_nodes) : slots_(static_cast<size_t>(num_nodes)) {}

  // Returns a slot at that node that no other sequence of this rank uses, or -1 if all are taken.
  // The caller never gives back a slot with requests that may still be in flight.
  int Take(int node) {
    const std::lock_guard<std::mutex> guard(mutex_);
    Slots& slots = slots_[static_cast<size_t>(node)];
    if (!slots.free.empty()) {
      const int slot = slots.free.back();
      slots.free.pop_back();
      return slot;
    }
    return slots.num_used < RequestLog::kSlots ? slots.num_used++ : -1;
  }
  // Returns the next number in that slot. The next owner of the slot continues the numbers.
  uint64_t Next(int node, int slot) {
    const std::lock_guard<std::mutex> guard(mutex_);
    return ++slots_[static_cast<size_t>(node)].last_numbers[slot];
  }
  void GiveBack(int node, int slot) {
    const std::lock_guard<std::mutex> guard(mutex_);
    slots_[static_cast<size_t>(node)].free.push_back(slot);
  }

 private:
  struct Slots {
    std::vector<int> free;  // given back
    int num_used = 0;       // ever taken
    uint64_t last_numbers[RequestLog::kSlots] = {};
  };

  std::mutex mutex_;
  std::vector<Slots> slots_;  // by node
};

}  // namespace multiverso
