// RelayAggregation: the sum of an array over the workers of several nodes, in place, in a session
// that goes on without lost ranks.
//
// The workers meet, and so agree on whose arrays are summed. The array passes in chunks: the
// workers of a node stage theirs in scratch memory; the first of them, the leader, adds them, in
// worker order, onto what the leader of the node before has sent, and passes that on; the last has
// the total and sends it to all leaders. If somebody dies meanwhile its node, and who waits for
// that node, give the sum up. In the end the workers meet again and hear whether anybody has: then
// all of them have failed, and can make the call again.
#ifndef MULTIVERSO_CONSISTENCY_RELAY_AGGREGATION_H_
#define MULTIVERSO_CONSISTENCY_RELAY_AGGREGATION_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "group/node_group.h"

namespace multiverso {

class RelayAggregation {
 public:
  // `data` outlives the aggregation.
  RelayAggregation(NodeGroup* group, DType dtype, void* data, int64_t count);

  // Called once.
  Status Run(const WaitLimit& limit);

 private:
  Messenger* messenger() const { return group_->control_channel()->messenger(); }
  int64_t Bytes(int64_t elements) const { return elements * SizeOf(dtype_); }
  int64_t ChunkBegin() const { return chunk_ * in_chunk_; }
  int64_t ChunkCount() const { return std::min(count_, ChunkBegin() + in_chunk_) - ChunkBegin(); }
  // In turn: the total of one chunk is read while the next is staged.
  char* scratch(int rank) const {
    return group_->scratch(group_->local_rank_of(rank), static_cast<int>(chunk_ % 2));
  }
  bool is_leader() const { return group_->rank() == here_.front(); }

  // Who takes part, of those who came.
  void TakePart();
  Status SumChunk(const WaitLimit& limit);
  // Whether all who take part on this node came to its last meeting.
  void CheckNeighbours();
  // The leader's part of a chunk.
  Status Sum(const WaitLimit& limit);
  Status Exchange(bool* done);
  void AddOwn(std::string* values) const;
  Status SendTo(int leader, const std::string& values) const;
  // What that leader sends of this chunk, if it has come.
  Status TakeFrom(int leader, std::string* values, bool* came);
  // What came of it, on all alike.
  Status Vote() const;

  NodeGroup* group_;
  DType dtype_;
  char* data_;
  int64_t count_;
  int64_t in_chunk_;  // most elements of one
  int64_t chunks_;
  int64_t chunk_ = 0;
  uint64_t meeting_ = 0;      // of the workers, with which it began: the messages name it
  std::vector<int> there_;    // who take part
  std::vector<int> here_;     // of them, those of this node
  std::vector<int> leaders_;  // in the order of the sum
  size_t place_ = 0;          // of this node's among them
  bool has_passed_on_ = false;
  int lost_ = -1;  // whose death ended it, as far as this rank knows
  Instant began_;
  Backoff backoff_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_RELAY_AGGREGATION_H_
