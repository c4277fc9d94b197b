// Aggregation: the sum of an array over the workers, in place, for model averaging, or the result
// of another operation, which the following also calls a sum.
//
// The array passes through scratch memory in chunks. Every worker stages a chunk, all synchronize,
// and the chunk is summed: by all workers on one node (LocalAggregation), or by the first workers
// of the nodes (SpanningAggregation).
//
// In a session that continues without lost ranks, each worker states for which workers it has
// staged. If the participants of the first collective differ from these workers, no worker has
// summed yet, and all stage again. If a worker is lost later, only some of the others may have the
// sums, so the call fails on all workers.
//
// float16 and bfloat16 are summed in float32, and the sum is rounded once. A mean is a sum that is
// divided before.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "group/rank_context.h"
#include "sum/piece_link.h"
#include "sum/reduction.h"

namespace multiverso {

// What a session keeps between aggregates.
struct AggregationState {
  // The area of scratch memory that is used next, which is the same on all workers of a node.
  // Consecutive calls, and over several nodes consecutive chunks, alternate between two areas, so
  // that no worker waits until the slowest has read the area before.
  int area = 0;
  std::unique_ptr<PieceLink> link;    // of a worker that has summed for its node
  std::list<PieceLink::Piece> early;  // pieces of later calls
};

class Aggregation {
 public:
  // The array of a call, and the operation.
  struct Array {
    ReduceOp op;
    DType dtype;
    void* data;
    int64_t count;
  };

  // `state` and the array's data outlive the aggregation. `staged_bytes` is the size of an element
  // in scratch memory.
  Aggregation(RankContext* context, AggregationState* state, const Array& array,
              int64_t staged_bytes);

  virtual ~Aggregation() = default;

  // Sums the array. Call this function once.
  Status Run(const WaitLimit& limit);

 protected:
  // An error that names the end of a lost rank continues with this text.
  static constexpr char kCutOff[] =
      " in the middle of aggregate: a part of the array has been summed";

  virtual Status RunChunks(const WaitLimit& limit) = 0;
  // Sets the ranks whose arrays are summed, which include this rank.
  virtual void SumOver(std::vector<int> ranks);
  // Copies the values that other workers read from the current chunk to scratch memory.
  virtual void StageChunk() = 0;

  // Stages the chunk and waits for the other workers. Stages the first chunk again after a loss.
  Status StageTogether(bool is_first, const WaitLimit& limit, Attachment* attachment = nullptr);
  // Returns an error if one of the workers did not take part in the last collective.
  Status CheckAllCame() const { return context_->workers()->CheckTookPart(ranks_, kCutOff); }
  int64_t element_bytes() const { return SizeOf(array_.dtype); }
  // Returns an element of the array.
  char* element(int64_t number) const {
    return static_cast<char*>(array_.data) + number * element_bytes();
  }
  // Returns the scratch memory of a worker of this node.
  char* scratch(int rank, int area) const {
    return context_->memory()->scratch(context_->members().local_rank_of(rank), area);
  }
  char* scratch(int rank) const { return scratch(rank, state_->area); }

  RankContext* context_;
  AggregationState* state_;
  Reduction reduction_;
  int64_t count_;
  int64_t in_chunk_;  // the largest number of elements of a chunk
  int64_t chunks_;
  int64_t done_ = 0;        // number of chunks summed
  std::vector<int> ranks_;  // the ranks whose arrays are summed

 private:
  // Returns whether all workers in `present` have staged for exactly the workers in `present`.
  bool AllStagedFor(const std::vector<int>& present) const;

  Array array_;
};

}  // namespace multiverso
