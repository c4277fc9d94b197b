// Aggregation: the sum of an array over the workers of one node, in place, for model averaging.
//
// The array passes through scratch memory in chunks. Every worker stages the parts of a chunk that
// other workers sum, and all synchronize. Each worker then sums its own part of the chunk in worker
// order, and writes the sum over the staged values of each other worker. All workers synchronize
// again, and each copies the sums from its own scratch memory. The number of cache lines that a
// core can fetch limits the speed, so a sum returns in the line of its summand, which the core has.
//
// Small arrays need one collective: every worker stages all values and sums all of them itself.
// Consecutive calls alternate between two areas of scratch memory, so that no worker waits until
// the slowest has read the area of the previous call.
//
// In a session that continues without lost ranks, each worker states for which workers it has
// staged. If the participants of the first collective differ from these workers, no worker has
// summed yet, and all stage again. If a worker is lost later, only some of the others may have the
// sums that it made, so the call fails on all workers.
#ifndef MULTIVERSO_CONSISTENCY_AGGREGATION_H_
#define MULTIVERSO_CONSISTENCY_AGGREGATION_H_

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "group/rank_context.h"

namespace multiverso {

// Selects the area of scratch memory of the next call, equally on all workers. Calls on area 0
// start at the first chunk, calls on area 1 at the last. So a call that sums the same array as the
// previous call starts with the chunks that are still in the cache.
struct NextScratchArea {
  int area = 0;
};

class Aggregation {
 public:
  // `next` belongs to the session. `next` and `data` must outlive the aggregation.
  Aggregation(RankContext* context, NextScratchArea* next, DType dtype, void* data, int64_t count);

  // Sums the array. Call this function once.
  Status Run(const WaitLimit& limit);

 private:
  // Sets the ranks whose arrays are summed, which include this rank.
  void SumOver(std::vector<int> ranks);
  // Returns whether all workers in `present` have staged for exactly the workers in `present`.
  bool AllStagedFor(const std::vector<int>& present) const;
  Status CheckAllCame(const std::vector<int>& present) const;

  // Return the first element of the current chunk, and its number of elements.
  int64_t ChunkBegin() const;
  int64_t ChunkCount() const;
  // Returns where the part that `worker` sums begins, counted from the start of the chunk.
  int64_t PartBegin(int worker) const;
  bool IsSmall() const;

  void StageChunk();
  // Stages the chunk and waits for the other workers. Stages the first chunk again after a loss.
  Status StageTogether(const WaitLimit& limit);
  void SumPart(int64_t begin, int64_t end);
  void CopyOthersParts();
  char* scratch(int worker) const;

  RankContext* context_;
  NextScratchArea* next_;
  DType dtype_;
  char* data_;
  int64_t count_;
  int64_t in_chunk_;  // the largest number of elements of a chunk
  int64_t chunks_;
  int64_t done_ = 0;        // number of chunks summed
  std::vector<int> ranks_;  // the ranks whose arrays are summed
  int me_ = 0;              // index of this rank in ranks_
  int workers_ = 0;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_AGGREGATION_H_
