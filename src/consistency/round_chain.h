// RoundChain: sums the rounds of a table over nodes, and applies them to this node's replica.
//
// The leaders of the nodes that have workers form a chain, in worker order. When all workers of the
// first node have made their add of a round, its leader sums their staged deltas in worker order
// and sends the sum to the next node. Each further leader adds its own workers' deltas, one after
// the other. The last leader has the total, which travels back along the chain. So each element is
// summed term by term in the same order as on a single node, and all replicas are bitwise
// identical. The sum travels in consecutive pieces, so all links are busy at once, and the traffic
// does not depend on the number of workers. A leader starts a round as soon as its workers have
// passed the round, because their staged deltas suffice and no worker has to be in a call.
//
// A node whose workers have all finished passes on the pieces that it receives. The first nodes of
// the chain announce their end when they have no more pieces to pass on, and later rounds begin at
// the nodes after them. When all nodes have announced their end, the last node sends the number of
// rounds back after the totals. A node that receives that number knows that no total is in flight.
#ifndef MULTIVERSO_CONSISTENCY_ROUND_CHAIN_H_
#define MULTIVERSO_CONSISTENCY_ROUND_CHAIN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "consistency/chain_link.h"
#include "consistency/chain_piece.h"
#include "consistency/chain_sum.h"
#include "consistency/replica_memory.h"
#include "consistency/worker_clocks.h"
#include "group/rank_context.h"
#include "shard/shard.h"

namespace multiverso {

// Belongs to the leader of a node. One thread at a time uses a chain. No function waits.
class RoundChain {
 public:
  RoundChain(int64_t table, const StagedShape& shape, ReplicaMemory memory, WorkerClocks* clocks,
             Shard* shard, RankContext* context);

  // Makes progress. Sets *any if there was work.
  Status Poll(bool* any);
  // Receives totals and passes them on without beginning a new sum.
  Status PollTotals();
  // Returns whether a sum is being made, or a total of this node's sums has not arrived.
  bool IsAwaitingPieces() const { return IsAtWork() || applied_ < summed_; }
  // Announces that the workers of this node make no more adds.
  void Close() { is_closing_ = true; }
  // Returns whether all nodes have announced their end and no message of the table is in flight.
  bool IsClosed() const { return is_closed_ && link_.AllSent(); }

 private:
  // Handles one piece of the sum over the previous nodes and this node.
  Status StepDown(bool* any);
  // Handles one piece of the total.
  Status StepUp(bool* any);
  // Prepares the sum of the next round. Returns false if no piece of the round can be made yet.
  bool Open();
  // Returns whether the open sum has values of this node, or has begun.
  bool IsAtWork() const { return is_open_ && (contributes_ || next_ > 0 || input_ != nullptr); }
  Status TakeInput(bool* has_arrived);
  // If no more pieces come from here, announces that to the next node (the last node: the
  // previous).
  Status AnnounceEnd(bool* any);
  bool NothingMoreFromHere() const;
  std::unique_ptr<ChainPiece> MakePiece();
  // Applies a piece of the total and passes the piece back.
  Status PassBack(std::unique_ptr<ChainPiece> piece);
  void Apply(const ChainPiece& piece);
  void ApplyRange(int64_t first, int64_t count, int64_t terms, const char* values);
  // Checks that the piece is the next piece of that round and is valid in itself.
  Status Check(const ChainPiece& piece, ChainLink::Side from, uint64_t round, int64_t first) const;

  int64_t table_;
  DType dtype_;
  SegmentGrid grid_;
  ReplicaMemory memory_;
  WorkerClocks* clocks_;
  Shard* shard_;
  ChainLink link_;
  ChainSum sum_;
  std::vector<char> scratch_;

  // State of the sum.
  uint64_t summed_ = 0;   // number of rounds summed
  bool is_open_ = false;  // whether the sum of round summed_ is open
  bool expects_ = false;  // whether the previous node sends pieces of the open round
  bool contributes_ = false;
  int64_t next_ = 0;  // the next segment of the open round
  std::unique_ptr<ChainPiece> input_;
  bool is_end_known_ = false;  // whether the end of the previous node's pieces is known
  uint64_t end_ = 0;           // the first round without pieces of the previous node
  bool end_announced_ = false;
  // State of the total.
  uint64_t applied_ = 0;
  int64_t next_to_apply_ = 0;
  bool is_closing_ = false;
  bool is_closed_ = false;  // all totals have arrived and been passed on
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_ROUND_CHAIN_H_
