// Aggregation: the sum of an array over the workers, in place, for model averaging.
//
// The array passes through scratch memory in chunks. Every worker stages its part of a chunk, and
// all synchronize. Each worker then sums its share of the chunk in worker order, and writes the sum
// over the staged values of each other worker. All synchronize again, and each copies the sums from
// its own scratch memory. The number of cache lines that a core can fetch limits the speed, so a
// sum returns in the line of its summand, which the core already has.
//
// Small arrays need one collective: every worker stages everything and sums for itself. Consecutive
// calls alternate between two areas of scratch memory, so that no worker waits until the slowest
// has read the area of the previous call.
//
// In a session that continues without lost ranks, each worker states for which workers it has
// staged. If those are not the participants of the first collective, no worker has summed yet, and
// all stage again. A worker that dies later leaves sums that only some workers have, which is an
// error on all.
#ifndef MULTIVERSO_CONSISTENCY_AGGREGATION_H_
#define MULTIVERSO_CONSISTENCY_AGGREGATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "group/rank_context.h"

namespace multiverso {

// Selects the area of scratch memory of the next call, equally on all workers. Calls on one area
// start at the first chunk, calls on the other at the last. If the same array is summed again, the
// chunks that are still in the cache come first.
struct AggregationTurn {
  int area = 0;
};

class Aggregation {
 public:
  // `turn` belongs to the session. It and `data` must outlive the aggregation.
  Aggregation(RankContext* context, AggregationTurn* turn, DType dtype, void* data, int64_t count);

  // Call this once.
  Status Run(const WaitLimit& limit);

 private:
  // Sums the arrays of these workers, which include this rank.
  void SumOver(std::vector<int> ranks);
  // Whether all participants have staged for these participants.
  bool AllStagedFor(const std::vector<int>& present) const;
  Status CheckAllCame(const std::vector<int>& present) const;

  // The first element of the current chunk, and its number of elements.
  int64_t ChunkBegin() const;
  int64_t ChunkCount() const;
  // The first element of the chunk that `worker` sums.
  int64_t PartBegin(int worker) const;
  bool IsSmall() const;

  void StageChunk();
  // Stages the chunk on all workers. They repeat the first chunk if some workers were lost.
  Status StageTogether(const WaitLimit& limit);
  void SumPart(int64_t begin, int64_t end);
  void CopyOthersParts();
  char* scratch(int worker) const;

  RankContext* context_;
  AggregationTurn* turn_;
  DType dtype_;
  char* data_;
  int64_t count_;
  int64_t in_chunk_;  // largest number of elements of a chunk
  int64_t chunks_;
  int64_t done_ = 0;        // chunks
  std::vector<int> ranks_;  // whose arrays are summed
  int me_ = 0;              // index among them
  int workers_ = 0;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_AGGREGATION_H_
