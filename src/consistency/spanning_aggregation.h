// SpanningAggregation: the sum of an array over the workers, in place, where they are on several
// nodes.
//
// The array passes in chunks. The workers of a node stage a chunk in scratch memory; their leader
// adds it, in worker order, onto what comes from the nodes before, and passes that on (as
// RoundChain does for tables); the total comes back into the leader's scratch memory, and the
// others copy it. While the leaders do that with one chunk, the others copy the one before and
// stage the next.
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
#include "group/node_group.h"
#include "transport/deferred_failure.h"

namespace multiverso {

class SpanningAggregation {
 public:
  // What a leader sends and receives with: of the session, so that what it keeps ready to receive
  // stays.
  static std::unique_ptr<ChainLink> MakeLink(NodeGroup* group);

  // `link` and `data` outlive the aggregation; `link` is used on leaders only.
  SpanningAggregation(NodeGroup* group, ChainLink* link, DType dtype, void* data, int64_t count);

  // Called once.
  Status Run(const WaitLimit& limit);

 private:
  int64_t ChunkEnd(int64_t chunk) const;
  int64_t Bytes(int64_t elements) const { return elements * SizeOf(dtype_); }
  // All workers of this node have staged chunk_, and the one before is summed.
  Status Meet(const WaitLimit& limit);
  void Stage(int64_t chunk);
  void CopyTotal(int64_t chunk);
  // The leader's part, until chunk_ is summed.
  Status Sum(const WaitLimit& limit);
  // The leaders of whom one has not sent what is due.
  std::vector<int> Awaited() const;
  // What is to be done now of the link's work.
  Status StepLink(bool* any);
  Status StepDown(bool* any);
  Status StepUp(bool* any);
  void AddOwn(ChainPiece* piece);
  Status PassBack(std::unique_ptr<ChainPiece> piece);
  Status Check(const ChainPiece& piece, ChainLink::Side from, int64_t first) const;
  // Whether those who have a part in it are still there.
  Status LookAfterOthers() const;
  char* scratch(int rank, int64_t chunk) const;

  NodeGroup* group_;
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
  int64_t sent_ = 0;  // elements of the array that have been passed on, and that are summed
  int64_t summed_ = 0;
  Instant began_;
  std::optional<Backoff> backoff_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_SPANNING_AGGREGATION_H_
