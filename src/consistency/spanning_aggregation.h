// SpanningAggregation: the sum of an array over the workers of several nodes, in place.
//
// The array passes in chunks. The workers of a node stage a chunk in scratch memory. Their leader
// adds it in worker order to the sum of the previous nodes and passes the result on, as RoundChain
// does for tables. The total returns to the leader's scratch memory, from which the others copy it.
// While the leaders sum one chunk, the others copy the previous chunk and stage the next.
#ifndef MULTIVERSO_CONSISTENCY_SPANNING_AGGREGATION_H_
#define MULTIVERSO_CONSISTENCY_SPANNING_AGGREGATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "consistency/chain_link.h"
#include "group/rank_context.h"
#include "transport/deferred_failure.h"

namespace multiverso {

class SpanningAggregation {
 public:
  // Makes the link with which a leader sends and receives. The session owns it, so its posted
  // receives persist.
  static std::unique_ptr<ChainLink> MakeLink(RankContext* context);

  // `link` and `data` must outlive the aggregation. Only leaders use `link`.
  SpanningAggregation(RankContext* context, ChainLink* link, DType dtype, void* data,
                      int64_t count);

  // Call this once.
  Status Run(const WaitLimit& limit);

 private:
  int64_t ChunkEnd(int64_t chunk) const;
  int64_t Bytes(int64_t elements) const { return elements * SizeOf(dtype_); }
  // Waits until all workers of this node have staged chunk_ and the previous chunk is summed.
  Status Meet(const WaitLimit& limit);
  void Stage(int64_t chunk);
  void CopyTotal(int64_t chunk);
  // Sums on the leader, until chunk_ is summed.
  Status Sum(const WaitLimit& limit);
  // Returns the leaders whose next piece is missing.
  std::vector<int> Awaited() const;
  // Does the work of the link that is possible now.
  Status StepLink(bool* any);
  Status StepDown(bool* any);
  Status StepUp(bool* any);
  void AddOwn(ChainPiece* piece);
  Status PassBack(std::unique_ptr<ChainPiece> piece);
  Status Check(const ChainPiece& piece, ChainLink::Side from, int64_t first) const;
  // Checks that the ranks that take part are still alive.
  Status LookAfterOthers() const;
  char* scratch(int rank, int64_t chunk) const;

  RankContext* context_;
  ChainLink* link_;
  DeferredFailure failure_;
  DType dtype_;
  char* data_;
  int64_t count_;
  int64_t in_chunk_;  // elements
  int64_t chunks_;
  std::vector<int> here_;  // ranks of the workers of this node
  int leader_;
  int64_t chunk_ = 0;
  int64_t sent_ = 0;  // elements of the array passed on, and summed
  int64_t summed_ = 0;
  Instant began_;
  std::optional<Backoff> backoff_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_SPANNING_AGGREGATION_H_
