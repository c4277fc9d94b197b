// Aggregation: the sum of an array over the workers, in place, for model averaging, or the result
// of another operation, which the following also calls a sum.
//
// The array passes through scratch memory in chunks. Every worker stages a chunk, all synchronize,
// and the chunk is summed: by all workers on one node (LocalAggregation), or by the first workers
// of the nodes (SpanningAggregation).
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
  // Consecutive calls on one node alternate between two areas, so that no worker waits until the
  // slowest has read the area before.
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

  // `state` and the array's data outlive the aggregation.
  Aggregation(RankContext* context, AggregationState* state, const Array& array);

  virtual ~Aggregation() = default;

  // Sums the array. Call this function once.
  virtual Status Run(const WaitLimit& limit) = 0;

 protected:
  // Waits for the other workers, after this one has staged, and checks that they make this call.
  Status Meet(const WaitLimit& limit, Attachment* attachment = nullptr) const;
  // Returns whether all workers that came to Meet have staged for exactly these workers.
  bool AllStagedForThese() const;
  int64_t element_bytes() const { return SizeOf(array_.dtype); }
  // Returns an element of the array.
  char* element(int64_t number) const {
    return static_cast<char*>(array_.data) + number * element_bytes();
  }
  // Returns the scratch memory of a worker of this node.
  char* scratch(int rank, int area) const {
    return context_->memory()->scratch(context_->members().local_rank_of(rank), area);
  }

  RankContext* context_;
  AggregationState* state_;
  Reduction reduction_;
  int64_t count_;
  std::vector<int> ranks_;  // the ranks whose arrays are summed, all workers at first

 private:
  Array array_;
};

}  // namespace multiverso
