// Rounds: sync mode (bulk synchronous parallel) for one table.
//
// Round r consists of add number r of every worker, counted from 0. A worker stages its delta in
// its node's shared memory and continues. When all workers have staged, their deltas are summed
// (pairwise_sum.h) and applied as one update. A get after j adds waits until rounds 0 to j - 1 have
// been applied, and then copies the parameters. The parameters do not change during the copy,
// because round j needs this worker's add number j.
//
// This class counts calls, finds memory for deltas and stages them. Where the workers are decides
// who sums them: LocalSum on one node, SpanningSum over several.
#pragma once

#include <cstdint>
#include <vector>

#include "consistency/call_comparison.h"
#include "consistency/consistency.h"
#include "consistency/round_memory.h"
#include "consistency/worker_clocks.h"
#include "consistency/worker_wait.h"
#include "shard/tensor_exchange.h"

namespace multiverso {

// "The first n rounds" are rounds 0 to n - 1.
class Rounds : public Consistency {
 public:
  Status Run(const Request& request, const WaitLimit& limit) override;
  Status DeltaBuffer(void** buffer, const WaitLimit& limit) override;
  Status View(const void** values, const WaitLimit& limit) override;
  bool HasRounds() const override { return true; }
  void Finish() override;
  bool HasFinished() const override { return clocks_.i_have_finished(); }
  void ReachSyncPoint(const SyncPoint& point) override;
  CallDigest CallsBefore(const SyncPoint& point) const override;
  Status CompareAt(const SyncPoint& point) override { return CompareAllAt(clocks_, point); }
  Status CheckAdds(uint64_t rounds) override { return CompareAdds(clocks_, rounds, "get"); }
  void Depart() override;
  Status Settle(const WaitLimit& limit) override;
  std::vector<uint64_t> Clocks() const override { return clocks_.AllAdds(); }
  void StartFrom(uint64_t rounds) override { clocks_.StartFrom(rounds); }

 protected:
  // Uses the memory at `base`, which begins with that of `clocks`. A rank that is no worker makes
  // no adds and gets.
  Rounds(const StagedShape& shape, char* base, Shard* shard, WorkerClocks clocks);

  TensorExchange ExchangeOf(const Request& request) const {
    return TensorExchange(shard_->updater(), *shard_->hyper(), request);
  }

  StagedShape shape_;
  Shard* shard_;
  RoundMemory memory_;
  WorkerClocks clocks_;
  WorkerWait wait_;

 private:
  // ---- Adding
  // Makes the rows exist that the request adds to or gets.
  virtual Status Touch(const Request& /*request*/, const WaitLimit& /*limit*/) {
    return Status::Ok();
  }
  // Copies a delta of the whole table to this worker's staging memory, or, if `to` is null, uses it
  // where it is. In an add_get, may leave out a block that only this worker sums, in
  // ReadAfterAdd, or use the delta where it is until ReturnDelta. Returns who sums that block. Of
  // an exchange, computes the delta there.
  virtual SummedBy StageWhole(const Request& request, char* to) = 0;
  // Called after this worker has counted the add that it staged.
  virtual void NoteAdd() {}
  // Called at the end of an add_get, after which the caller may write over the delta, even if the
  // round needs it still.
  virtual void ReturnDelta() {}
  // Waits until the deltas of the first `rounds` rounds have been summed, so that their memory can
  // be used again. On one node their sums have then been applied, too.
  virtual Status AwaitSummed(uint64_t rounds, const char* call, const WaitLimit& limit) = 0;
  // Returns whether AwaitSummed would not wait.
  virtual bool HasSummed(uint64_t rounds) const = 0;
  // Returns whether others may read a copy of a delta after it has been summed, until all workers
  // have passed the next round.
  virtual bool MayReadSummedCopies() const { return false; }

  // ---- Getting
  // Waits until the first `rounds` rounds have been applied, and copies the parameters. They do not
  // change meanwhile if a later round needs an add of this worker.
  virtual Status Read(const Request& request, uint64_t rounds, const char* call,
                      const WaitLimit& limit) = 0;
  // Waits until the first `rounds` rounds have been applied, the last of which has the delta that
  // this worker has staged in an add_get or exchange, and copies the parameters.
  virtual Status ReadAfterAdd(const Request& request, uint64_t rounds, const WaitLimit& limit) = 0;
  // Returns whether workers may stage a delta in place, in the buffer that Staging has for it, and
  // read the parameters in place.
  virtual bool IsInPlace() const { return false; }
  // Sets *rounds to the number of rounds that are complete as far as this node knows, and waits
  // until they have been applied. They include those that were complete at that sync point.
  virtual Status AwaitComplete(uint64_t sync_point, const char* call, const WaitLimit& limit,
                               uint64_t* rounds) = 0;

  bool is_worker() const { return clocks_.me() >= 0; }
  Status Add(const Request& request, const WaitLimit& limit);
  // Runs an add_get or an exchange.
  Status AddGet(const Request& request, const WaitLimit& limit);
  Status Get(const Request& request, const WaitLimit& limit);
  // Returns the parameters after the last complete round, for a peek (Request::is_peek), and for a
  // worker that has finished.
  Status GetComplete(const Request& request, const WaitLimit& limit);
  // Returns whether no worker needs this worker's copies of its deltas of the first `rounds`
  // rounds.
  bool AreCopiesFree(uint64_t rounds) const {
    return rounds == 0 ||
           (HasSummed(rounds) && (!MayReadSummedCopies() || clocks_.AllHavePassed(rounds)));
  }
  // Finds a buffer for the delta: one that receives copies, or the one in which the delta is.
  Status WaitForBuffer(const void* delta, const char* call, const WaitLimit& limit, int* buffer);
  // Stages the delta of this worker's current round. The clocks' CountAdd then publishes it.
  void Stage(const Request& request, int buffer);

  Staging staging_;
  int index_;                // of this worker in the staging memory
  uint64_t sync_point_ = 0;  // the number of the last sync point that this rank has reached
  // For each of this worker's buffers, 1 plus the last round that used it, or 0 for a new buffer.
  uint64_t used_in_[Staging::kBuffers] = {};
};

}  // namespace multiverso
