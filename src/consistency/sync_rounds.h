// SyncRounds: sync mode (bulk synchronous parallel) for one table, with all workers on one node.
//
// Round r consists of add number r of every worker, counted from 0. A worker stages its delta in
// shared memory and continues. When all workers have staged, the workers that wait in a call sum
// the deltas (pairwise_sum.h) and apply the sum as one update. The table's stripes are divided into
// a block per worker. Each worker begins with its own block and then helps with the others. So a
// round needs every worker's delta, but any worker may sum a staged block. A get after j adds waits
// until rounds 0 to j - 1 have been applied, and then copies the parameters. The parameters do not
// change during the copy, because round j needs this worker's add number j.
//
// A delta that the worker has written to its DeltaBuffer is staged already.
//
// A worker touches lazy rows (shard/lazy_rows.h) before it stages their deltas.
//
// A worker in add_get does not stage its own block. The worker sums that block itself, straight
// from the caller's delta into the caller's result, which saves two copies.
#ifndef MULTIVERSO_CONSISTENCY_SYNC_ROUNDS_H_
#define MULTIVERSO_CONSISTENCY_SYNC_ROUNDS_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "consistency/consistency.h"
#include "consistency/staging.h"
#include "consistency/worker_clocks.h"
#include "sum/round_sum.h"

namespace multiverso {

class SyncRounds final : public Consistency {
 public:
  static bool BytesFor(const StagedShape& shape, int workers, int64_t* bytes);

  // `base` begins with the memory that `clocks` uses.
  SyncRounds(const StagedShape& shape, char* base, Shard* shard, WorkerClocks clocks);

  Status Run(const Request& request, Progress* progress, const WaitLimit& limit) override;
  Status DeltaBuffer(void** buffer, const WaitLimit& limit) override;
  Status View(const void** values, Progress* progress, const WaitLimit& limit) override;
  void Finish() override { clocks_.Finish(); }
  bool HasFinished() const override { return clocks_.i_have_finished(); }
  void ReachSyncPoint(const SyncPoint& point) override { clocks_.ReachSyncPoint(point); }
  Status Settle(const WaitLimit& limit) override;
  std::vector<uint64_t> Clocks() const override { return clocks_.AllAdds(); }
  void StartFrom(uint64_t rounds) override { clocks_.StartFrom(rounds); }

 private:
  // Lies in shared memory. The numbers of a block's stripes that workers have claimed and that they
  // have applied, over all rounds. With n stripes, round r spans the numbers r * n to (r + 1) * n.
  struct alignas(64) BlockWords {
    std::atomic<uint64_t> claimed;
    std::atomic<uint64_t> done;
  };
  struct Block {
    int64_t first_stripe;
    int64_t stripes;
    BlockWords* words;
  };
  // The delta and result of an add_get, for this worker's own block, which add_get does not stage.
  struct OwnBlock {
    const char* delta = nullptr;
    char* out = nullptr;
  };

  // ---- Adding
  Status Add(const Request& request, Progress* progress, const WaitLimit& limit);
  // Finds a buffer for the delta: one that receives copies, or the one in which the delta is.
  Status WaitForBuffer(const void* delta, const char* call, const WaitLimit& limit, int* buffer);
  // Calls copy(first element, count, byte offset in a delta or a result) for a block, if it has
  // any.
  template <class Copy>
  void ForElementsOf(const Block& block, const Copy& copy) const;
  void StageWhole(int buffer, const void* delta, bool keeps_own_block);
  // Writes the StagedAdd of this worker's current round. CountAdd then publishes the delta.
  void Describe(bool is_rows, int buffer, int64_t count, bool keeps_own_block);

  // ---- Summing
  bool IsApplied(const Block& block, uint64_t round) const;
  bool AllApplied(uint64_t round) const;
  // Returns the first round that is not applied to the whole block.
  uint64_t CurrentRound(const Block& block) const;
  // Returns whether this worker may now sum stripes of the owner's block for that round.
  bool CanSumBlock(int owner, uint64_t round) const;
  void SumBlock(int owner, uint64_t round, const OwnBlock& own);
  // Waits until `round` has been applied to the owner's block. Sums stripes of it where possible.
  Status WaitForBlock(int owner, uint64_t round, const OwnBlock& own, const char* call,
                      const WaitLimit& limit);
  Status WaitForRound(uint64_t round, const char* call, const WaitLimit& limit);
  void CollectSources(uint64_t round, const OwnBlock& own);
  // Sums a stripe and applies the sum to the parameters, as one update. `out`, if not null, spans
  // the whole table and receives the new parameters of the stripe.
  void SumStripe(int64_t stripe, char* out);

  // ---- Getting
  // Makes the tick of a get and waits for the rounds of this worker's adds.
  Status AwaitState(const char* call, Progress* progress, const WaitLimit& limit);
  Status Get(const Request& request, Progress* progress, const WaitLimit& limit);
  // Copies the parameters after the last complete round, for a peek (Request::IsPeek), and for a
  // worker that has finished.
  Status GetComplete(const Request& request, const WaitLimit& limit);

  Status AddGet(const Request& request, Progress* progress, const WaitLimit& limit);

  StagedShape shape_;
  Shard* shard_;
  WorkerClocks clocks_;
  Staging staging_;
  RoundSum sum_;
  std::vector<Block> blocks_;         // one per worker, in worker order
  std::vector<DeltaSource> sources_;  // of the round that this worker sums
  std::vector<char> scratch_;         // for new parameters that no caller receives
  bool own_block_is_out_ = false;  // whether the last add_get's result has the worker's own block
  // For each of this worker's buffers, 1 plus the last round that used it, or 0 for a new buffer.
  uint64_t used_in_[Staging::kBuffers] = {};
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_SYNC_ROUNDS_H_
