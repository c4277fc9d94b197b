// Aggregation: the sum of an array over the workers, in place, for model averaging, or the result
// of another operation, which the following also calls a sum.
//
// The array passes through scratch memory in chunks. Every worker stages a chunk but for its own
// share of it, all synchronize, and each sums its share. On one node it writes the sum over the
// staged values of each other worker, all synchronize, and each takes the sums from its own scratch
// memory: the number of cache lines that a core can fetch limits the speed, so a sum returns in the
// line of its summand, which the core has. Small arrays need one collective: every worker stages
// all elements and sums all of them itself.
//
// Over several nodes each node has a part of the array, and chunk k has piece k of each part, so
// that all nodes are busy with it. The sums of the shares are those of the node. Its first worker
// leads it: it sums them with those of the other nodes as for tables (NodeSum), and all take the
// result from its scratch memory. A node of one worker stages nothing: it sends pieces and receives
// results in its own array, without a pause. A small sum has no messages of its own, because they
// would take most of its time: each leader attaches its node's sums to the first collective, and
// adds those of all nodes.
//
// float16 and bfloat16 are summed in float32, and the sum is rounded once, so over several nodes
// scratch memory has float32. A mean is a sum that is divided when it is stored.
//
// In a session that continues without lost ranks, each worker states for which workers it has
// staged. If the participants of the first collective differ from these workers, no worker has
// summed yet, and all stage again. If a worker is lost later, only some of the others may have the
// sums, so the call fails on all workers.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "group/peer_watch.h"
#include "group/rank_context.h"
#include "sum/node_sum.h"
#include "sum/piece_link.h"
#include "sum/reduction.h"
#include "transport/deferred_failure.h"

namespace multiverso {

// What a session keeps between aggregates.
struct AggregationState {
  // The area of scratch memory that is used next, which is the same on all workers of a node. A
  // call never begins in the area in which the last one ended, so that no worker waits until the
  // slowest has read that.
  int area = 0;
  std::unique_ptr<PieceLink> link;    // of a worker that has summed for its node
  std::list<PieceLink::Piece> early;  // pieces of later calls
};

class Aggregation final : private NodeSum::Terms, private Attachment {
 public:
  // The array of a call, and the operation.
  struct Array {
    ReduceOp op;
    DType dtype;
    void* data;
    int64_t count;
  };

  // `state` and the array's data outlive the aggregation. `over_nodes` says whether the session is
  // on several nodes.
  Aggregation(RankContext* context, AggregationState* state, const Array& array, bool over_nodes);

  // Sums the array. Call this function once.
  Status Run(const WaitLimit& limit);

 private:
  // ---- Who sums what
  // Sets the ranks whose arrays are summed, which include this rank.
  void SumOver(std::vector<int> ranks);
  // Decides on the parts of the array, their pieces, and whether they are staged.
  void MakePlan();
  bool IsSmall() const;
  bool IsLeader() const { return here_.front() == context_->members().rank(); }
  // Returns the type of staged values.
  DType staged_type() const { return over_nodes_ ? ValueType(array_.dtype) : array_.dtype; }
  int64_t staged_bytes() const { return SizeOf(staged_type()); }
  // Returns whether that is the type of the array.
  bool is_staged_as_it_is() const { return staged_type() == array_.dtype; }
  // Returns the number of the current chunk. On one node, calls on area 0 start at the first chunk,
  // calls on area 1 at the last. So a call that sums the same array as the previous call starts
  // with the chunks that are still in the cache.
  int64_t chunk() const { return over_nodes_ || state_->area == 0 ? done_ : chunks_ - 1 - done_; }
  // Calls use(first element, count) for each piece of a chunk.
  template <class Use>
  void ForPieces(int64_t chunk, Use use) const;
  const SumPlan::Part& PartOf(int64_t element) const;
  // Returns where the share of here_[place] begins in a piece of that many elements.
  int64_t ShareBegin(int64_t count, size_t place) const;
  // Returns the largest subtrees of the canonical sum whose workers are all on that node.
  std::vector<WorkerRange> RangesOf(int node) const;

  // ---- Memory
  char* element(int64_t number) const {
    return static_cast<char*>(array_.data) + number * SizeOf(array_.dtype);
  }
  // Returns where an element is in the scratch memory of a worker of this node.
  char* Staged(int rank, int64_t element) const;
  // Returns the ranks of this node whose workers are in the range.
  std::vector<int> RanksIn(const WorkerRange& range) const;

  // ---- Steps of a chunk
  // Copies the values that other workers read from a chunk to scratch memory.
  void StageChunk(int64_t chunk);
  // Stages the chunk and waits for the other workers. Stages the first chunk again after a loss.
  Status StageTogether(const WaitLimit& limit);
  // Waits for the other workers, after this one has staged, and checks that they make this call.
  Status Meet(const WaitLimit& limit);
  // Returns whether all workers that came to Meet have staged for exactly these workers.
  bool AllStagedForThese() const;
  // Waits for the other workers of the node.
  Status WaitHere(const WaitLimit& limit);
  // Returns PeerLostError if a worker of the session is lost.
  Status CheckForLosses();
  // Sums this worker's share of the chunk.
  void SumShare();
  // Sums elements of a piece over workers of this node.
  void SumElements(const std::vector<int>& ranks, int64_t first, int64_t count);
  // Stores the sum of the chunk in the array.
  void StoreChunk();

  // ---- The part of a node's leader
  // Sums with the other nodes until the chunk is summed.
  Status SumWithNodes(const WaitLimit& limit);
  // Sums further pieces. Sets *any if there was one.
  Status ExchangePieces(bool* any);
  int64_t Open(uint64_t round, int64_t first, std::vector<DeltaSource>* sources) override;
  std::string Pack() override;
  bool Take(int leader, const std::string& attached) override;
  void Finish() override;

  RankContext* context_;
  AggregationState* state_;
  bool over_nodes_;
  Array array_;
  Reduction reduction_;
  Reduction staged_reduction_;  // combines staged values
  std::vector<int> ranks_;      // the ranks whose arrays are summed, all workers at first
  std::vector<int> here_;       // those of this node
  size_t me_ = 0;               // index of this rank in here_
  SumPlan plan_;
  std::vector<std::vector<int>> workers_;  // by node
  int64_t piece_ = 0;                      // the number of elements of a piece
  int64_t chunks_ = 1;
  bool is_staged_ = true;  // if not, the leader alone has an array to sum
  int64_t done_ = 0;       // number of chunks summed
  // The following members are used by the leader.
  std::unique_ptr<NodeSum> sum_;
  int64_t sum_number_ = 0;                             // identifies the sum in messages
  std::vector<std::pair<int, std::string>> attached_;  // nodes and their partial sums
  DeferredFailure failure_;
  PeerWatch watch_;
};

}  // namespace multiverso
