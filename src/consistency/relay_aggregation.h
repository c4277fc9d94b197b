// RelayAggregation: the sum of an array over the workers of several nodes, in place, in a session
// that continues without lost ranks.
//
// A first collective of the workers determines whose arrays are summed. The array is summed in
// chunks. The workers of a node stage a chunk in scratch memory. The leader, the node's first
// worker, adds the staged values in worker order to the sum of the previous leader and passes the
// result on. The last leader sends the total to all leaders. If a rank is lost, the leaders that
// detect the loss stop summing. A final collective tells all workers whether any worker stopped.
// If so, the call fails on all workers, so that no worker relies on a sum that others lack.
#ifndef MULTIVERSO_CONSISTENCY_RELAY_AGGREGATION_H_
#define MULTIVERSO_CONSISTENCY_RELAY_AGGREGATION_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "group/rank_context.h"

namespace multiverso {

class RelayAggregation {
 public:
  // `data` must outlive the aggregation.
  RelayAggregation(RankContext* context, DType dtype, void* data, int64_t count);

  // Sums the array. Call this function once.
  Status Run(const WaitLimit& limit);

 private:
  Messenger* messenger() const { return context_->control_channel()->messenger(); }
  int64_t Bytes(int64_t elements) const { return elements * SizeOf(dtype_); }
  int64_t ChunkBegin() const { return chunk_ * in_chunk_; }
  int64_t ChunkCount() const { return std::min(count_, ChunkBegin() + in_chunk_) - ChunkBegin(); }
  // The two areas alternate, because the next chunk is staged while a total is still read.
  char* scratch(int rank) const {
    return context_->memory()->scratch(context_->members().local_rank_of(rank),
                                       static_cast<int>(chunk_ % 2));
  }
  bool is_leader() const { return context_->members().rank() == ranks_here_.front(); }

  // Sets the ranks and leaders of the sum from the participants of the first collective.
  void ChooseRanks();
  Status SumChunk(const WaitLimit& limit);
  // Sets lost_ if a worker of this node was missing in the last collective of node_workers().
  void CheckNodeWorkers();
  // Does the leader's part for a chunk: receives, adds and sends until the total is in scratch.
  Status SumAsLeader(const WaitLimit& limit);
  Status Exchange(bool* done);
  void AddOwn(std::string* values) const;
  Status SendTo(int leader, const std::string& values) const;
  // Receives that leader's values of this chunk. Sets *has_arrived if the values have arrived.
  Status TakeFrom(int leader, std::string* values, bool* has_arrived);
  // Returns the outcome of the final collective, which is the same on all workers.
  Status Vote() const;

  RankContext* context_;
  DType dtype_;
  char* data_;
  int64_t count_;
  int64_t in_chunk_;  // the largest number of elements of a chunk
  int64_t chunks_;
  int64_t chunk_ = 0;
  uint64_t sequence_ = 0;        // of the first collective; identifies this sum's messages
  std::vector<int> ranks_;       // the workers whose arrays are summed
  std::vector<int> ranks_here_;  // the workers of ranks_ on this node
  std::vector<int> leaders_;     // in the order of the sum
  size_t place_ = 0;             // the index of this node's leader in leaders_
  bool has_passed_on_ = false;
  int lost_ = -1;  // the lost rank that ended the sum, or -1 if this rank knows none
  Instant began_;
  Backoff backoff_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_RELAY_AGGREGATION_H_
