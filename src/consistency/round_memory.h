// RoundMemory: the memory for the rounds of a table that the ranks of a node share besides the
// shard.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "consistency/staging.h"
#include "consistency/worker_clocks.h"
#include "node/membership.h"

namespace multiverso {

// Numbers of rounds over several nodes. The node's leader writes all but two of them.
struct alignas(64) SpanningWords {
  std::atomic<uint64_t> summed;   // rounds whose staged deltas on this node are no longer needed
  std::atomic<uint64_t> begun;    // rounds whose changes of this node's memory have begun
  std::atomic<uint64_t> applied;  // rounds applied to this node's part of the table
  std::atomic<uint64_t> copied;   // rounds whose results have been copied from all other parts
  // 1 plus the first round whose results are copied, or 0 if none is. Loading sets it to 0.
  std::atomic<uint64_t> copied_from;
  std::atomic<uint32_t> is_copy_wanted;  // set by a worker that reads the whole table
};

// Holds the clocks of all workers, words, over several nodes a copy of the table, and the deltas
// that this node's workers stage. The pages of a copy that is never made are never touched.
class RoundMemory {
 public:
  // Sets *bytes to its size for a table of that shape. Returns false if the address space is too
  // small.
  static bool BytesFor(const StagedShape& shape, const Membership& members, int64_t* bytes);

  // `base` begins with the memory that `clocks` uses.
  RoundMemory(const StagedShape& shape, char* base, const WorkerClocks& clocks);

  // Returns the words, which are a cache line for each worker, zero-filled at first: an array of
  // the words of LocalSum, or the SpanningWords.
  template <class Words = SpanningWords>
  Words* words() const {
    return reinterpret_cast<Words*>(words_);
  }
  // Returns the copy of the table, in which this node's own part is used only if results travel
  // encoded.
  char* copy() const { return copy_; }
  const Staging& staging() const { return staging_; }
  // Returns the index in the staging memory of a worker of this node, or -1 for another rank.
  int local_index_of(int worker) const {
    return worker < 0 ? -1 : local_indices_[static_cast<size_t>(worker)];
  }

 private:
  char* words_;
  char* copy_;
  Staging staging_;
  std::vector<int> local_indices_;  // by worker
};

}  // namespace multiverso
