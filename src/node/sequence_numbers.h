// SequenceNumbers: numbers this rank's requests to other nodes (RequestLog).
#ifndef MULTIVERSO_NODE_SEQUENCE_NUMBERS_H_
#define MULTIVERSO_NODE_SEQUENCE_NUMBERS_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "node/request_log.h"

namespace multiverso {

// Thread-safe.
class SequenceNumbers {
 public:
  explicit SequenceNumbers(int num_nodes) : nodes_(static_cast<size_t>(num_nodes)) {}

  // Returns a slot at that node that no other sequence of this rank uses, or -1 if all are taken.
  // The caller never gives back a slot with requests that may still be in flight.
  int Take(int node) {
    const std::lock_guard<std::mutex> guard(mutex_);
    Node& one = nodes_[static_cast<size_t>(node)];
    if (!one.free.empty()) {
      const int slot = one.free.back();
      one.free.pop_back();
      return slot;
    }
    return one.used < RequestLog::kSlots ? one.used++ : -1;
  }
  // Returns the next number of the sequence.
  uint64_t Next(int node, int slot) {
    const std::lock_guard<std::mutex> guard(mutex_);
    return ++nodes_[static_cast<size_t>(node)].last[slot];
  }
  void GiveBack(int node, int slot) {
    const std::lock_guard<std::mutex> guard(mutex_);
    nodes_[static_cast<size_t>(node)].free.push_back(slot);
  }

 private:
  struct Node {
    std::vector<int> free;
    int used = 0;
    uint64_t last[RequestLog::kSlots] = {};
  };

  std::mutex mutex_;
  std::vector<Node> nodes_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_NODE_SEQUENCE_NUMBERS_H_
