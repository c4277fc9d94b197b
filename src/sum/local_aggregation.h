// LocalAggregation: the sum of an array over workers that are all on one node.
//
// Each worker sums its own part of a staged chunk, and writes the sum over the staged values of
// each other worker. All workers synchronize, and each copies the sums from its own scratch memory.
// The number of cache lines that a core can fetch limits the speed, so a sum returns in the line of
// its summand, which the core has. A worker's own part needs no scratch memory. Small arrays need
// one collective: every worker stages all elements and sums all of them itself.
#pragma once

#include <cstdint>
#include <vector>

#include "sum/aggregation.h"

namespace multiverso {

class LocalAggregation final : public Aggregation {
 public:
  LocalAggregation(RankContext* context, AggregationState* state, const Array& array)
      : Aggregation(context, state, array, SizeOf(array.dtype)) {}

 private:
  Status RunChunks(const WaitLimit& limit) override;
  void SumOver(std::vector<int> ranks) override;
  void StageChunk() override;

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

  int me_ = 0;  // index of this rank in ranks_
};

}  // namespace multiverso
