// SpanningAggregation: the sum of an array over workers on several nodes.
//
// The first worker of each node leads it: it sums with the other nodes' leaders as for tables
// (NodeSum), in its own array, and writes the sum to its scratch memory, from which the node's
// other workers copy. Meanwhile they stage the next chunk. Scratch memory has elements in the type
// in which they are summed. If that is not the type of the array, the leader sums there, too.
//
// The time of a small sum is that of its messages. So a small sum needs no messages of its own:
// each leader attaches its node's partial sums to the first collective, and adds those of all
// nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "group/peer_watch.h"
#include "sum/aggregation.h"
#include "sum/node_sum.h"
#include "transport/deferred_failure.h"

namespace multiverso {

class SpanningAggregation final : public Aggregation, private NodeSum::Values, private Attachment {
 public:
  SpanningAggregation(RankContext* context, AggregationState* state, const Array& array);

  Status Run(const WaitLimit& limit) override;

 private:
  // Returns the size of an element in the type in which it is summed.
  int64_t value_bytes() const { return reduction_.value_bytes(); }
  // Returns whether that is the type of the array.
  bool is_summed_as_it_is() const { return reduction_.combines_elements(); }
  bool IsSmall() const;
  int64_t ChunkBegin() const { return done_ * in_chunk_; }
  int64_t ChunkCount() const;
  // Copies `count` elements of the array, from `first` on, to scratch memory.
  void Stage(int64_t first, int64_t count, char* to) const {
    reduction_.Load(element(first), count, to);
  }
  // Returns the value of an element of the current chunk in the memory in which the leader sums.
  char* value(int64_t number) const;
  bool IsLeader() const { return ranks_here_.front() == context_->members().rank(); }
  Status SumChunk(const WaitLimit& limit);
  // Stores the sum of the current chunk in the array.
  void StoreChunk();
  // Does the part of the node's leader.
  Status SumAsLeader(const WaitLimit& limit);
  // Sums further pieces. Sets *any if there was one.
  Status ExchangePieces(bool* any);
  bool IsSummed() const;
  SumPlan PlanOf(int64_t count) const;
  Status WaitHere(const WaitLimit& limit);
  // Returns PeerLostError if a worker of the session is lost.
  Status CheckForLosses();

  // Returns the largest subtrees of the canonical sum whose workers are all on that node.
  std::vector<WorkerRange> RangesOf(int node) const;
  std::string Pack() override;
  bool Take(const NodeContribution& theirs) override;
  void Finish() override;

  bool Open(uint64_t round, std::vector<DeltaSource>* sources) override;
  void Apply(int64_t element, int64_t count, const char* sum, int64_t terms, char* out) override;
  void Read(int64_t element, int64_t count, char* out) const override;
  void Store(int64_t element, int64_t count, const char* values) override;

  std::vector<int> ranks_here_;  // the ranks of this node whose arrays are summed
  // The following members are used by the leader.
  std::unique_ptr<NodeSum> sum_;
  int64_t sum_number_ = 0;  // identifies the sum in messages
  int64_t sum_count_ = 0;   // the number of elements of the chunks that it sums
  uint64_t rounds_ = 0;     // the number of chunks that it has begun
  std::vector<std::pair<int, std::string>> attached_;  // nodes and their partial sums
  DeferredFailure failure_;
  PeerWatch watch_;
};

}  // namespace multiverso
