// RoundChain: sums the rounds of a table over nodes, and applies them to this node's replica.
//
// The leaders of the nodes that have workers are a chain, in worker order. When all workers of the
// first node have made their add of a round, its leader sums what they staged, in worker order, and
// sends it on; each next leader adds its own workers' deltas, one after the other, and the last one
// has the total, which goes back the same way. So the sum of each element is the one that a single
// node makes, term by term, and all replicas get the same bits. The sum travels in pieces that
// follow each other, so that all links are busy at once, and what crosses them does not depend on
// the number of workers. A leader does this as soon as its workers have passed a round, whether or
// not anybody waits: a round needs everybody's delta and nobody's presence.
//
// A node whose workers have all finished passes on what comes. The first nodes of the chain, once
// they have nothing to pass on, say so, and the rounds begin behind them. In the end all say so,
// and the last one says how many rounds there were, which goes back as the totals do: then nothing
// is under way any more.
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

// Of the leader of a node. Used by one thread at a time; nothing here waits.
class RoundChain {
 public:
  RoundChain(int64_t table, const StagedShape& shape, ReplicaMemory memory, WorkerClocks* clocks,
             Shard* shard, RankContext* group);

  // Goes on; *any if there was something to do.
  Status Poll(bool* any);
  // The same, but begins nothing new: takes in the totals that come, and passes them on.
  Status PollTotals();
  // Whether a message of another leader is due.
  bool Awaits() const { return IsAtWork() || applied_ < summed_; }
  // The workers of this node make no more adds.
  void Close() { is_closing_ = true; }
  // Whether all nodes have done so, and nothing is under way.
  bool IsClosed() const { return is_closed_ && link_.AllSent(); }

 private:
  // One piece of the sum over the nodes before this one and its own.
  Status StepDown(bool* any);
  // One piece of the total.
  Status StepUp(bool* any);
  bool Open();
  // In the middle of a sum; not just ready to pass one on.
  bool IsAtWork() const { return is_open_ && (contributes_ || next_ > 0 || input_ != nullptr); }
  Status TakeInput(bool* came);
  // Tells the next node, or as the last one those before, if no more comes.
  Status SayEnd(bool* any);
  bool NothingMoreFromHere() const;
  std::unique_ptr<ChainPiece> MakePiece();
  // Of the total: applies it and passes it back.
  Status PassBack(std::unique_ptr<ChainPiece> piece);
  void Apply(const ChainPiece& piece);
  void ApplyRange(int64_t first, int64_t count, int64_t terms, const char* values);
  // Whether the piece is the next of that round; nothing in it is believed.
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

  // Of the sum.
  uint64_t summed_ = 0;   // rounds
  bool is_open_ = false;  // in the middle of round summed_
  bool expects_ = false;  // pieces of it from the node before
  bool contributes_ = false;
  int64_t next_ = 0;  // segment
  std::unique_ptr<ChainPiece> input_;
  bool is_end_known_ = false;  // of what comes from the node before
  uint64_t end_ = 0;
  bool end_said_ = false;
  // Of the total.
  uint64_t applied_ = 0;
  int64_t next_to_apply_ = 0;
  bool is_closing_ = false;
  bool is_closed_ = false;  // all totals have come and been passed on
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_ROUND_CHAIN_H_
