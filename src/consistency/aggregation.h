// Aggregation: the sum of an array over the workers, in place: model averaging.
//
// The array passes through scratch memory in chunks. Of each chunk, every worker stages what the
// others are to sum; they meet; each sums its own part, in worker order, and writes the sum over
// what each of the others had staged of it; they meet; each copies the sums from its own scratch
// memory. What limits it is how many cache lines a core can fetch, and so a sum goes back in the
// line that the summand came in, which the core has already.
//
// Small arrays take one meeting: everybody stages everything and sums for itself. The calls use two
// areas of scratch memory in turn, so that nobody has to wait until the slowest has read the area
// of the call before.
//
// In a session that goes on without lost ranks, each worker says whose arrays it has staged for. If
// that is not who came to the first meeting, nobody has summed yet, and all stage anew. A worker
// that dies later leaves sums that only some have: an error on all.
#ifndef MULTIVERSO_CONSISTENCY_AGGREGATION_H_
#define MULTIVERSO_CONSISTENCY_AGGREGATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "group/node_group.h"

namespace multiverso {

// Which area of scratch memory the next call uses: the same on all workers. Calls on the one begin
// with the first chunk, calls on the other with the last: if the same array is summed again, the
// chunks that are still in the cache come first.
struct AggregationTurn {
  int area = 0;
};

class Aggregation {
 public:
  // `turn` is the session's. It and `data` outlive the aggregation.
  Aggregation(NodeGroup* group, AggregationTurn* turn, DType dtype, void* data, int64_t count);

  // Called once.
  Status Run(const WaitLimit& limit);

 private:
  // The sum is to be that of these workers, of which this rank is one.
  void SumOver(std::vector<int> ranks);
  // Whether all who came have staged for those who came.
  bool AllStagedFor(const std::vector<int>& present) const;
  Status CheckAllCame(const std::vector<int>& present) const;

  // The chunk in work: its first element, and how many it has.
  int64_t ChunkBegin() const;
  int64_t ChunkCount() const;
  // The first element of the chunk that `worker` sums.
  int64_t PartBegin(int worker) const;
  bool IsSmall() const;

  void StageChunk();
  // Stages the chunk with all workers. They repeat it for the first chunk if some were lost.
  Status StageTogether(const WaitLimit& limit);
  void SumPart(int64_t begin, int64_t end);
  void CopyOthersParts();
  char* scratch(int worker) const;

  NodeGroup* group_;
  AggregationTurn* turn_;
  DType dtype_;
  char* data_;
  int64_t count_;
  int64_t in_chunk_;  // most elements of one
  int64_t chunks_;
  int64_t done_ = 0;        // chunks
  std::vector<int> ranks_;  // whose arrays are summed
  int me_ = 0;              // place among them
  int workers_ = 0;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_AGGREGATION_H_
