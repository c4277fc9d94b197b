// LocalSum: sums the deltas of workers that are all on one node.
//
// When all workers have staged their deltas of a round, the workers that wait in a call sum the
// deltas and apply the sum. The table's stripes are divided into a block per worker. Each worker
// begins with its own block and then helps with the others. So a round needs every worker's delta,
// but any worker may sum a staged block.
//
// A worker touches lazy rows (shard/lazy_rows.h) before it stages their deltas.
//
// A worker in add_get does not stage its own block. The worker sums that block itself, straight
// from the caller's delta into the caller's result, which saves two copies. An exchange
// computes its delta of the other blocks in the staging memory.
//
// In an add_get on a small table, each worker stages its whole delta, and also sums the blocks of
// the others, in a copy of the parameters that nobody else uses. Waiting for their sums would take
// twice as long, since the deltas go from one core to the other, and then the sums go back.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "consistency/rounds.h"
#include "sum/round_sum.h"

namespace multiverso {

class LocalSum final : public Rounds {
 public:
  LocalSum(const StagedShape& shape, char* base, Shard* shard, WorkerClocks clocks);

  bool HasBegun(uint64_t rounds) const override;
  Status Settle(const WaitLimit& limit) override {
    copied_rounds_ = kNoCopy;  // The caller may be about to change the parameters.
    return Rounds::Settle(limit);
  }

 private:
  Status Touch(const Request& request, const WaitLimit& limit) override {
    return shard_->Touch(request, limit);
  }
  SummedBy StageWhole(const Request& request, char* to) override;
  Status AwaitSummed(uint64_t rounds, const char* call, const WaitLimit& limit) override;
  bool HasSummed(uint64_t rounds) const override;
  bool MayReadSummedCopies() const override { return is_small_; }
  Status Read(const Request& request, uint64_t rounds, const char* call,
              const WaitLimit& limit) override;
  Status ReadAfterAdd(const Request& request, uint64_t rounds, const WaitLimit& limit) override;
  bool IsInPlace() const override { return true; }
  Status AwaitComplete(uint64_t sync_point, const char* call, const WaitLimit& limit,
                       uint64_t* rounds) override;

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

  // Calls copy(first element, count, byte offset in a delta or a result) for a block, if it has
  // any.
  template <class Copy>
  void ForElementsOf(const Block& block, const Copy& copy) const;
  bool IsApplied(const Block& block, uint64_t round) const;
  // Returns the first round that is not applied to the whole block.
  uint64_t CurrentRound(const Block& block) const;
  // Returns whether this worker may now sum stripes of the owner's block for that round.
  bool CanSumBlock(int owner, uint64_t round) const;
  void SumBlock(int owner, uint64_t round, const OwnBlock& own);
  // Waits until `round` has been applied to the owner's block. Sums stripes of it where possible.
  Status WaitForBlock(int owner, uint64_t round, const OwnBlock& own, const char* call,
                      const WaitLimit& limit);
  void CollectSources(uint64_t round, const OwnBlock& own);
  // Returns whether the deltas of the round, which all workers have passed, are all whole and in
  // buffers that do not change before this worker passes the next round.
  bool CanSumInCopy(uint64_t round) const;
  // Sums another worker's block in copy_, and stores the new parameters of the block in `out`.
  void SumInCopy(const Block& block, char* out);
  // Sums a stripe and applies the sum to the parameters, as one update. `out`, if not null, spans
  // the whole table and receives the new parameters of the stripe.
  void SumStripe(int64_t stripe, char* out);

  RoundSum sum_;
  std::vector<Block> blocks_;         // one per worker, in worker order
  std::vector<DeltaSource> sources_;  // of the round that this worker sums
  std::vector<char> scratch_;         // for new parameters that no caller receives
  bool own_block_is_out_ = false;  // whether the last add_get's result has the worker's own block
  bool is_small_ = false;          // the same on all workers
  // For a small table, the other workers' blocks of the parameters after `copied_rounds_` rounds.
  static constexpr uint64_t kNoCopy = UINT64_MAX;
  std::unique_ptr<char[]> copy_;
  uint64_t copied_rounds_ = kNoCopy;
};

}  // namespace multiverso
