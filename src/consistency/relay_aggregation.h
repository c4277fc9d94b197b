// RelayAggregation: the sum of an array over the workers of several nodes, in place, in a session
// that continues without lost ranks.
//
// A first collective of the workers determines whose arrays are summed. The array passes in chunks.
// The workers of a node stage their parts in scratch memory. The first of them, the leader, adds
// them in worker order to the sum of the previous node's leader and passes the result on. The last
// leader has the total and sends it to all leaders. If a rank dies, its node and the nodes that
// wait for it stop summing. A final collective tells all workers whether any of them stopped: then
// the call fails on all of them, and can be repeated.
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

  // Call this once.
  Status Run(const WaitLimit& limit);

 private:
  Messenger* messenger() const { return context_->control_channel()->messenger(); }
  int64_t Bytes(int64_t elements) const { return elements * SizeOf(dtype_); }
  int64_t ChunkBegin() const { return chunk_ * in_chunk_; }
  int64_t ChunkCount() const { return std::min(count_, ChunkBegin() + in_chunk_) - ChunkBegin(); }
  // The areas alternate: the total of one chunk is read while the next is staged.
  char* scratch(int rank) const {
    return context_->memory()->scratch(context_->members().local_rank_of(rank),
                                       static_cast<int>(chunk_ % 2));
  }
  bool is_leader() const { return context_->members().rank() == here_.front(); }

  // Determines which of the participants take part in the sum.
  void TakePart();
  Status SumChunk(const WaitLimit& limit);
  // Checks that all workers of this node joined its last collective.
  void CheckNeighbours();
  // Sums a chunk, on the leader.
  Status Sum(const WaitLimit& limit);
  Status Exchange(bool* done);
  void AddOwn(std::string* values) const;
  Status SendTo(int leader, const std::string& values) const;
  // Receives that leader's values of this chunk, if they have arrived.
  Status TakeFrom(int leader, std::string* values, bool* came);
  // Returns the outcome, which is the same on all workers.
  Status Vote() const;

  RankContext* context_;
  DType dtype_;
  char* data_;
  int64_t count_;
  int64_t in_chunk_;  // largest number of elements of a chunk
  int64_t chunks_;
  int64_t chunk_ = 0;
  uint64_t sequence_ = 0;     // of the workers' first collective; identifies this sum's messages
  std::vector<int> there_;    // the workers that take part
  std::vector<int> here_;     // those of this node
  std::vector<int> leaders_;  // in the order of the sum
  size_t place_ = 0;          // index of this node's leader
  bool has_passed_on_ = false;
  int lost_ = -1;  // the rank whose death ended the sum, as far as this rank knows
  Instant began_;
  Backoff backoff_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_RELAY_AGGREGATION_H_
