// ReplicaMemory: what the ranks of a node share of a table in sync mode, in a session whose workers
// are on several nodes, besides the table's replica itself.
#ifndef MULTIVERSO_CONSISTENCY_REPLICA_MEMORY_H_
#define MULTIVERSO_CONSISTENCY_REPLICA_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "consistency/staging.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

// Numbers of rounds, written by the node's leader. Valid when zero-filled.
struct alignas(64) ReplicaWords {
  std::atomic<uint64_t> summed;   // what the workers of this node staged is not needed any more
  std::atomic<uint64_t> begun;    // to be applied
  std::atomic<uint64_t> applied;  // to this node's replica
};

// The clocks of all workers, the words, and what the workers of this node stage.
class ReplicaMemory {
 public:
  static bool BytesFor(const StagedShape& shape, int workers, int workers_here, int64_t* bytes);

  // `base` begins with what `clocks` is over.
  ReplicaMemory(const StagedShape& shape, char* base, const WorkerClocks& clocks);

  ReplicaWords* words() const { return words_; }
  const Staging& staging() const { return staging_; }
  // The place of a worker of this node in the staging memory.
  int place_of(int worker) const { return places_[static_cast<size_t>(worker)]; }

 private:
  ReplicaWords* words_;
  Staging staging_;
  std::vector<int> places_;  // by worker
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_REPLICA_MEMORY_H_
