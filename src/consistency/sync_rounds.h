// SyncRounds: sync mode (bulk synchronous parallel), per table.
//
// Round r consists of add number r of every worker. A worker stages its delta in shared memory and
// continues; nothing is applied before all workers have staged. Then the workers that wait in a get
// sum the deltas, in worker order, and apply the sum as one update. The table's stripes are divided
// into a block per worker; each worker begins with its own block and then helps with the others. So
// a round needs every worker's delta, but any worker may do the summing. A get after j adds waits
// until rounds 0 to j - 1 have been applied, and copies. The parameters do not change meanwhile:
// round j needs this worker's add, which it has not made yet.
//
// add_get does not stage the worker's own block: it sums that block itself, straight from the
// caller's delta into the caller's result.
#ifndef MULTIVERSO_CONSISTENCY_SYNC_ROUNDS_H_
#define MULTIVERSO_CONSISTENCY_SYNC_ROUNDS_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "consistency/consistency.h"
#include "consistency/round_sum.h"
#include "consistency/staging.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

class SyncRounds final : public Consistency {
 public:
  static bool BytesFor(const StagedShape& shape, int workers, int64_t* bytes);

  // `base` begins with what `clocks` is over.
  SyncRounds(const StagedShape& shape, char* base, Shard* shard, WorkerClocks clocks);

  Status Run(const Request& request, Progress* progress, const WaitLimit& limit) override;
  void Finish() override { clocks_.Finish(); }
  void ReachSyncPoint(const SyncPoint& point) override { clocks_.ReachSyncPoint(point); }
  Status Settle(const WaitLimit& limit) override;
  std::vector<uint64_t> Clocks() const override { return clocks_.AllAdds(); }
  void StartFrom(uint64_t rounds) override { clocks_.StartFrom(rounds); }

 private:
  // In shared memory: how many stripes of the block have been claimed and done, over all rounds.
  // Both only grow; round r of a block of n stripes spans the counts r * n to (r + 1) * n.
  struct alignas(64) BlockWords {
    std::atomic<uint64_t> claimed;
    std::atomic<uint64_t> done;
  };
  struct Block {
    int64_t first_stripe;
    int64_t stripes;
    BlockWords* words;
  };
  // The delta and result of an add_get, for this worker's own block, which is not staged.
  struct OwnBlock {
    const char* delta = nullptr;
    char* out = nullptr;
  };

  // ---- Adding
  Status Add(const Request& request, Progress* progress, const WaitLimit& limit);
  Status WaitForBuffer(const char* call, const WaitLimit& limit, int* buffer);
  void StageWhole(int buffer, const void* delta, bool keep_own);
  // Publishes this worker's staged delta of its current round.
  void Describe(bool is_rows, int buffer, int64_t count, bool keep_own);

  // ---- Summing
  bool IsApplied(const Block& block, uint64_t round) const;
  bool AllApplied(uint64_t round) const;
  uint64_t CurrentRound(const Block& block) const;
  // Whether work on the block in that round is left, and this worker may do it.
  bool CanSumBlock(int block, uint64_t round) const;
  void SumBlock(int block, uint64_t round, const OwnBlock& own);
  // Waits until `round` has been applied to that block, and helps where possible.
  Status WaitForBlock(int block, uint64_t round, const OwnBlock& own, const char* call,
                      const WaitLimit& limit);
  Status WaitForRound(uint64_t round, const char* call, const WaitLimit& limit);
  void CollectContributions(uint64_t round, const OwnBlock& own);

  // ---- Getting
  void CopyBlock(const Block& block, char* out) const;
  Status Get(const Request& request, Progress* progress, const WaitLimit& limit);
  // For a worker that has finished: the state after the last complete round.
  Status Snapshot(const Request& request, const WaitLimit& limit);

  Status AddGet(const Request& request, Progress* progress, const WaitLimit& limit);

  StagedShape shape_;
  Shard* shard_;
  WorkerClocks clocks_;
  Staging staging_;
  RoundSum sum_;
  std::vector<Block> blocks_;                // one per worker, in worker order
  std::vector<Contribution> contributions_;  // to the round that this worker helps with
  bool own_block_is_out_ = false;  // the last add_get's own block has been written to its result
  // The round that last used each of this worker's buffers, plus 1.
  uint64_t used_in_[Staging::kBuffers] = {};
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_SYNC_ROUNDS_H_
