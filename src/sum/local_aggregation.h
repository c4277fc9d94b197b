// LocalAggregation: the sum of an array over workers that are all on one node.
//
// Each worker sums its own part of a staged chunk, and writes the sum over the staged values of
// each other worker. All workers synchronize, and each copies the sums from its own scratch memory.
// The number of cache lines that a core can fetch limits the speed, so a sum returns in the line of
// its summand, which the core has. A worker's own part needs no scratch memory. Small arrays need
// one collective: every worker stages all elements and sums all of them itself.
//
// In a session that continues without lost ranks, each worker states for which workers it has
// staged. If the participants of the first collective differ from these workers, no worker has
// summed yet, and all stage again. If a worker is lost later, only some of the others may have the
// sums, so the call fails on all workers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/checked.h"
#include "sum/aggregation.h"

namespace multiverso {

class LocalAggregation final : public Aggregation {
 public:
  LocalAggregation(RankContext* context, AggregationState* state, const Array& array)
      : Aggregation(context, state, array),
        in_chunk_(context->memory()->scratch_area_bytes() / element_bytes()),
        chunks_(std::max(DivideUp(array.count, in_chunk_), int64_t{1})) {}

  Status Run(const WaitLimit& limit) override;

 private:
  // Sets the ranks whose arrays are summed, which include this rank.
  void SumOver(std::vector<int> ranks);
  // Copies the values that other workers read from the current chunk to scratch memory.
  void StageChunk();
  // Stages the chunk and waits for the other workers. Stages the first chunk again after a loss.
  Status StageTogether(const WaitLimit& limit);
  // Returns an error if one of the workers did not take part in the last collective.
  Status CheckAllCame() const;
  // Return the first element of the current chunk, and its number of elements. Calls on area 0
  // start at the first chunk, calls on area 1 at the last. So a call that sums the same array as
  // the previous call starts with the chunks that are still in the cache.
  int64_t ChunkBegin() const;
  int64_t ChunkCount() const;
  bool IsSmall() const;
  Status SumChunk(const WaitLimit& limit);
  // Returns where the part that ranks_[place] sums begins, counted from the start of the chunk.
  int64_t PartBegin(int place) const;
  // Copies the elements begin to end - 1 of a chunk.
  void Copy(const char* from, int64_t begin, int64_t end, char* to) const;
  void SumPart(int64_t begin, int64_t end);
  void TakeOthersParts();

  char* scratch(int rank) const { return Aggregation::scratch(rank, state_->area); }

  int64_t in_chunk_;  // the largest number of elements of a chunk
  int64_t chunks_;
  int64_t done_ = 0;  // number of chunks summed
  int me_ = 0;        // index of this rank in ranks_
};

}  // namespace multiverso
