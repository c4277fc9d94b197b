// Aggregation: the sum of an array over the workers, in place: model averaging.
//
// The array passes through scratch memory in chunks. Of each chunk, every worker stages what the
// others are to sum; they meet; each sums its own part, in worker order; they meet; each copies
// the others' sums. Small arrays take one meeting: everybody stages everything and sums for itself.
// The two areas of scratch memory are used in turn, so that nobody has to wait until the slowest
// has read the area before.
#ifndef MULTIVERSO_CONSISTENCY_AGGREGATION_H_
#define MULTIVERSO_CONSISTENCY_AGGREGATION_H_

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/operation.h"
#include "transport/node_group.h"

namespace multiverso {

// Which area of scratch memory the next chunk goes through: the same on all workers.
struct AggregationTurn {
  int area = 0;
};

class Aggregation final : public Operation {
 public:
  // `turn` is the session's and outlives the operation, like `data`.
  Aggregation(NodeGroup* group, AggregationTurn* turn, DType dtype, void* data, int64_t count,
              Instant deadline);

  Status Step(const WaitLimit& limit) override;
  void Cancel(const std::string& reason) override;

 private:
  enum class Phase { kStaged, kSummed };

  // Elements of the chunk in work, and of it those that `worker` sums.
  int64_t ChunkCount() const;
  int64_t PartBegin(int worker) const;
  bool IsSmall() const;

  void StageChunk();
  Status CheckSameCall() const;
  void SumPart(int64_t begin, int64_t end);
  void CopyOthersParts();
  char* scratch(int worker) const;

  NodeGroup* group_;
  AggregationTurn* turn_;
  DType dtype_;
  char* data_;
  int64_t count_;
  int64_t done_ = 0;  // elements in chunks before this one
  int me_ = 0;        // place among the workers
  int workers_ = 0;
  Phase phase_ = Phase::kStaged;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_AGGREGATION_H_
