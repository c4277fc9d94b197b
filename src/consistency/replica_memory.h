// ReplicaMemory: the memory for rounds that the ranks of a node share besides the table's replica,
// in sync mode with workers on several nodes.
#ifndef MULTIVERSO_CONSISTENCY_REPLICA_MEMORY_H_
#define MULTIVERSO_CONSISTENCY_REPLICA_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "consistency/staging.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

// Numbers of rounds, written by the node's leader. Zero-filled words are valid.
struct alignas(64) ReplicaWords {
  std::atomic<uint64_t> summed;   // rounds whose staged deltas on this node are no longer needed
  std::atomic<uint64_t> begun;    // rounds whose application has begun
  std::atomic<uint64_t> applied;  // rounds applied to this node's replica
};

// Holds the clocks of all workers, the words, and the deltas that this node's workers stage.
class ReplicaMemory {
 public:
  static bool BytesFor(const StagedShape& shape, int workers, int workers_here, int64_t* bytes);

  // `base` begins with the memory that `clocks` uses.
  ReplicaMemory(const StagedShape& shape, char* base, const WorkerClocks& clocks);

  ReplicaWords* words() const { return words_; }
  const Staging& staging() const { return staging_; }
  // Returns the index in the staging memory of a worker of this node.
  int local_index_of(int worker) const { return local_indices_[static_cast<size_t>(worker)]; }

 private:
  ReplicaWords* words_;
  Staging staging_;
  std::vector<int> local_indices_;  // by worker; -1 for a worker of another node
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_REPLICA_MEMORY_H_
