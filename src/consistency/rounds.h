// Rounds: sync mode (bulk synchronous parallel) for one table.
//
// Round r consists of add number r of every worker, counted from 0. A worker stages its delta in
// its node's shared memory and continues. When all workers have staged, their deltas are summed
// (pairwise_sum.h) and applied as one update. A get after j adds waits until rounds 0 to j - 1 have
// been applied, and then copies the parameters. The parameters do not change during the copy,
// because round j needs this worker's add number j.
//
// This class counts calls, finds memory for deltas and stages them. A StagedSum does the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "consistency/consistency.h"
#include "consistency/staged_sum.h"
#include "consistency/staging.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

class Rounds final : public Consistency {
 public:
  // Takes over `clocks`, which `sum` uses, too. `index` is this worker's index in `staging`. A rank
  // that is no worker makes no adds and gets.
  Rounds(std::unique_ptr<WorkerClocks> clocks, const Staging& staging, int index,
         std::unique_ptr<StagedSum> sum)
      : clocks_(std::move(clocks)), staging_(staging), index_(index), sum_(std::move(sum)) {}

  Status Run(const Request& request, const WaitLimit& limit) override;
  Status DeltaBuffer(void** buffer, const WaitLimit& limit) override;
  Status View(const void** values, const WaitLimit& limit) override;
  bool HasRounds() const override { return true; }
  void PassTo(RequestRunner* runner, RoundService* service) override {
    sum_->PassTo(runner, service);
  }
  void Finish() override;
  bool HasFinished() const override { return clocks_->i_have_finished(); }
  void ReachSyncPoint(const SyncPoint& point) override;
  CallDigest CallsBefore(const SyncPoint& point) const override;
  Status CompareAt(const SyncPoint& point) override { return clocks_->CompareAt(point); }
  Status CheckAdds(uint64_t rounds) override { return clocks_->CheckAdds(rounds, "get"); }
  void Depart() override;
  bool HasApplied(uint64_t rounds) const override { return sum_->HasApplied(rounds); }
  bool HasBegun(uint64_t rounds) const override { return sum_->HasBegun(rounds); }
  uint64_t rounds_applied() const override { return sum_->rounds_applied(); }
  Status Settle(const WaitLimit& limit) override;
  std::vector<uint64_t> Clocks() const override { return clocks_->AllAdds(); }
  void StartFrom(uint64_t rounds) override;

 private:
  bool is_worker() const { return clocks_->me() >= 0; }
  Status Add(const Request& request, const WaitLimit& limit);
  // Runs an add_get or an exchange.
  Status AddGet(const Request& request, const WaitLimit& limit);
  Status Get(const Request& request, const WaitLimit& limit);
  // Returns the parameters after the last complete round, for a peek (Request::is_peek), and for a
  // worker that has finished.
  Status GetComplete(const Request& request, const WaitLimit& limit);
  // Finds a buffer for the delta: one that receives copies, or the one in which the delta is.
  Status WaitForBuffer(const void* delta, const char* call, const WaitLimit& limit, int* buffer);
  // Stages the delta of this worker's current round. The clocks' CountAdd then publishes it.
  void Stage(const Request& request, int buffer);

  std::unique_ptr<WorkerClocks> clocks_;
  Staging staging_;
  int index_;
  std::unique_ptr<StagedSum> sum_;
  uint64_t sync_point_ = 0;  // the number of the last sync point that this rank has reached
  // For each of this worker's buffers, 1 plus the last round that used it, or 0 for a new buffer.
  uint64_t used_in_[Staging::kBuffers] = {};
};

}  // namespace multiverso
