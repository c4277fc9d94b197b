// Aggregation: the sum of an array over the workers, in place, for model averaging.
//
// The array passes through scratch memory in chunks. Every worker stages a chunk, and all
// synchronize. On one node each worker then sums its own part of the chunk, and writes the sum over
// the staged values of each other worker. All workers synchronize again, and each copies the sums
// from its own scratch memory. The number of cache lines that a core can fetch limits the speed, so
// a sum returns in the line of its summand, which the core has. Small arrays need one collective:
// every worker stages all values and sums all of them itself. Over several nodes, the first worker
// of each node sums with the others' first workers as for tables (NodeSum), in its own array, and
// writes the sum to its scratch memory, from which the others copy. Meanwhile they stage the next
// chunk.
//
// Consecutive calls, and over several nodes consecutive chunks, alternate between two areas of
// scratch memory, so that no worker waits until the slowest has read the area before.
//
// In a session that continues without lost ranks, each worker states for which workers it has
// staged. If the participants of the first collective differ from these workers, no worker has
// summed yet, and all stage again. If a worker is lost later, only some of the others may have the
// sums, so the call fails on all workers.
#ifndef MULTIVERSO_SUM_AGGREGATION_H_
#define MULTIVERSO_SUM_AGGREGATION_H_

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "group/peer_watch.h"
#include "group/rank_context.h"
#include "sum/node_sum.h"
#include "sum/pairwise_sum.h"
#include "sum/piece_link.h"
#include "transport/deferred_failure.h"

namespace multiverso {

// What a session keeps between aggregates.
struct AggregationState {
  // The area of scratch memory that is used next, which is the same on all workers of a node. On
  // one node, calls on area 0 start at the first chunk, calls on area 1 at the last. So a call that
  // sums the same array as the previous call starts with the chunks that are still in the cache.
  int area = 0;
  std::unique_ptr<PieceLink> link;    // of a worker that has summed for its node
  int link_tag = 0;                   // the tag that the link uses
  std::list<PieceLink::Piece> early;  // pieces of later calls
};

class Aggregation final : private NodeSum::Values {
 public:
  // `state` and `data` must outlive the aggregation.
  Aggregation(RankContext* context, AggregationState* state, DType dtype, void* data,
              int64_t count);

  // Sums the array. Call this function once.
  Status Run(const WaitLimit& limit);

 private:
  // Sets the ranks whose arrays are summed, which include this rank.
  void SumOver(std::vector<int> ranks);
  // Returns whether all workers in `present` have staged for exactly the workers in `present`.
  bool AllStagedFor(const std::vector<int>& present) const;
  Status CheckAllCame() const;
  bool spans_nodes() const { return context_->members().spans_nodes(); }

  // Return the first element of the current chunk, and its number of elements.
  int64_t ChunkBegin() const;
  int64_t ChunkCount() const;
  bool IsSmall() const;
  char* scratch(int rank, int area) const;
  char* scratch(int rank) const { return scratch(rank, state_->area); }

  // Stages the chunk and waits for the other workers. Stages the first chunk again after a loss.
  Status StageTogether(const WaitLimit& limit);
  void StageChunk();
  // Copies `count` elements of the array, from `first` on, to this rank's scratch memory.
  void Stage(int64_t first, int64_t count, char* to) const;
  Status SumChunk(const WaitLimit& limit);
  // Returns where the part that ranks_[place] sums begins, counted from the start of the chunk.
  int64_t PartBegin(int place) const;
  void SumPart(int64_t begin, int64_t end);
  void CopyOthersParts();

  // ---- Over several nodes
  bool IsLeader() const { return ranks_here_.front() == context_->members().rank(); }
  Status SumChunkOverNodes(const WaitLimit& limit);
  // Does the part of the node's first worker.
  Status SumAsLeader(const WaitLimit& limit);
  // Sums further pieces. Sets *any if there was one.
  Status ExchangePieces(bool* any);
  bool IsSummed() const;
  SumPlan PlanOf(int64_t count) const;
  Status WaitHere(const WaitLimit& limit);
  // Returns an error, or sets lost_, if a worker of the session is lost.
  Status CheckForLosses();
  // Returns the outcome of a last collective, which is the same on all workers.
  Status AgreeOnLosses(const WaitLimit& limit);

  bool Open(uint64_t round, std::vector<DeltaSource>* sources) override;
  bool HaveFinished(const WorkerRange& workers, uint64_t round) const override;
  uint64_t CopiedFrom(uint64_t round) override;
  void BeginChange(uint64_t round) override;
  void Apply(int64_t element, int64_t count, const char* sum, int64_t terms, char* out) override;
  void Read(int64_t element, int64_t count, char* out) const override;
  void Store(int64_t element, int64_t count, const char* values) override;

  RankContext* context_;
  AggregationState* state_;
  DType dtype_;
  char* data_;
  int64_t count_;
  int64_t in_chunk_;  // the largest number of elements of a chunk
  int64_t chunks_;
  int64_t done_ = 0;             // number of chunks summed
  std::vector<int> ranks_;       // the ranks whose arrays are summed
  std::vector<int> ranks_here_;  // those on this node
  int me_ = 0;                   // index of this rank in ranks_
  // The following members are used by the first worker of each node, over several nodes.
  std::unique_ptr<NodeSum> sum_;
  int64_t sum_number_ = 0;  // identifies the sum in messages
  int64_t sum_count_ = 0;   // the number of elements of the chunks that it sums
  uint64_t rounds_ = 0;     // the number of chunks that it has begun
  DeferredFailure failure_;
  int lost_ = -1;  // the lost rank that ended the sum, or -1 if this rank knows none
  PeerWatch watch_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SUM_AGGREGATION_H_
