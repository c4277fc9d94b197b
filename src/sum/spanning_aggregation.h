// SpanningAggregation: the sum of an array over workers on several nodes.
//
// The first worker of each node leads it: it sums with the other nodes' leaders as for tables
// (NodeSum), in its own array. So each node has a part of the array, and a node of one worker sends
// pieces and receives results without a pause. The other workers of a node stage their arrays in
// scratch memory, in chunks: chunk k has piece k of each part, so all nodes are busy with it. The
// leader copies the sum to its own scratch memory, from which they take it. Meanwhile they
// have staged the next chunk, which it begins to sum. Scratch memory has elements in the type in
// which they are summed. If that is not the type of the array, the leader stages and sums there.
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

class SpanningAggregation final : public Aggregation, private NodeSum::Terms, private Attachment {
 public:
  SpanningAggregation(RankContext* context, AggregationState* state, const Array& array);

  Status Run(const WaitLimit& limit) override;

 private:
  // Returns the size of an element in the type in which it is summed.
  int64_t value_bytes() const { return reduction_.value_bytes(); }
  // Returns whether that is the type of the array.
  bool is_summed_as_it_is() const { return reduction_.combines_elements(); }
  bool IsSmall() const;
  bool IsLeader() const { return ranks_here_.front() == context_->members().rank(); }
  // Decides on the parts of the array and their pieces.
  void MakePlan();
  // Calls use(first element, count) for each piece of a chunk.
  template <class Use>
  void ForPieces(int64_t chunk, Use use) const;
  const SumPlan::Part& PartOf(int64_t element) const;
  // Returns where an element is in the scratch memory of a worker of this node.
  char* Staged(int rank, int64_t element) const;
  // Returns the value of an element in the memory in which the leader sums.
  char* value(int64_t number) const;
  void StageChunk(int64_t chunk);
  // Stores the sum of a chunk in the array.
  void StoreChunk(int64_t chunk);
  // Does the part of the node's leader until chunk done_ is summed.
  Status SumAsLeader(const WaitLimit& limit);
  // Begins with the next chunk if all workers have staged it.
  void TakeNextChunk();
  // Sums further pieces. Sets *any if there was one.
  Status ExchangePieces(bool* any);
  Status WaitHere(const WaitLimit& limit);
  // Returns PeerLostError if a worker of the session is lost.
  Status CheckForLosses();

  // Returns the largest subtrees of the canonical sum whose workers are all on that node.
  std::vector<WorkerRange> RangesOf(int node) const;
  std::string Pack() override;
  bool Take(int leader, const std::string& attached) override;
  void Finish() override;

  int64_t Open(uint64_t round, int64_t first, std::vector<DeltaSource>* sources) override;

  std::vector<int> ranks_here_;  // the ranks of this node whose arrays are summed
  SumPlan plan_;
  std::vector<std::vector<int>> workers_;  // by node
  int64_t piece_ = 0;                      // the number of elements of a piece
  int64_t chunks_ = 1;  // one, and nothing is staged, if the leader alone has an array to sum
  int64_t done_ = 0;    // number of chunks summed
  // The following members are used by the leader.
  int64_t staged_ = 1;  // number of chunks that all workers of this node have staged
  std::unique_ptr<NodeSum> sum_;
  int64_t sum_number_ = 0;                             // identifies the sum in messages
  std::vector<std::pair<int, std::string>> attached_;  // nodes and their partial sums
  DeferredFailure failure_;
  PeerWatch watch_;
};

}  // namespace multiverso
