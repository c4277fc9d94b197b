// SpanningAggregation: the sum of an array over the workers of several nodes, in place.
//
// The array is summed in chunks. The workers of a node stage a chunk in scratch memory. The leader
// adds the staged values in worker order to the sum of the previous nodes and passes the result
// on, as RoundChain does for tables. Each leader writes the total to its scratch memory, from which
// its node's workers copy. The workers copy one chunk and stage another while the leaders sum.
#ifndef MULTIVERSO_CONSISTENCY_SPANNING_AGGREGATION_H_
#define MULTIVERSO_CONSISTENCY_SPANNING_AGGREGATION_H_

#include <cstdint>
#include <memory>
#include <optional>
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
  // Makes the link with which a leader sends and receives, or null on other ranks. The session owns
  // the link, so that the posted receives persist between calls.
  static std::unique_ptr<ChainLink> MakeLink(RankContext* context);

  // `link` and `data` must outlive the aggregation. Only leaders use `link`.
  SpanningAggregation(RankContext* context, ChainLink* link, DType dtype, void* data,
                      int64_t count);

  // Sums the array. Call this function once.
  Status Run(const WaitLimit& limit);

 private:
  int64_t ChunkEnd(int64_t chunk) const;
  int64_t Bytes(int64_t elements) const { return elements * SizeOf(dtype_); }
  // Waits until this node's workers (for chunk 0, all workers) have staged chunk_ and this node's
  // leader has the total of the previous chunk.
  Status Meet(const WaitLimit& limit);
  void Stage(int64_t chunk);
  void CopyTotal(int64_t chunk);
  // Does the leader's part until chunk_ has been summed.
  Status SumAsLeader(const WaitLimit& limit);
  // Returns the leaders on the side of the chain from which the next piece is missing.
  std::vector<int> Awaited() const;
  // Sends and receives the pieces that are ready. Sets *any if there was a piece.
  Status StepLink(bool* any);
  Status StepDown(bool* any);
  Status StepUp(bool* any);
  void AddOwn(ChainPiece* piece);
  Status PassBack(std::unique_ptr<ChainPiece> piece);
  Status Check(const ChainPiece& piece, ChainLink::Side from, int64_t first) const;
  // Reports a lost worker, and returns the error, if any worker of the session is lost.
  Status CheckForLosses() const;
  char* scratch(int rank, int64_t chunk) const;

  RankContext* context_;
  ChainLink* link_;
  DeferredFailure failure_;
  DType dtype_;
  char* data_;
  int64_t count_;
  int64_t in_chunk_;  // the largest number of elements of a chunk
  int64_t chunks_;
  std::vector<int> ranks_here_;  // the ranks of this node's workers
  int leader_;
  int64_t chunk_ = 0;
  int64_t sent_ = 0;    // number of elements passed on
  int64_t summed_ = 0;  // number of elements whose total is here
  Instant began_;
  std::optional<Backoff> backoff_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_SPANNING_AGGREGATION_H_
