// StalenessBound: bounded staleness, after the stale synchronous parallel model of Ho et al.,
// "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013.
//
// Adds are applied at once, as in async mode, and each add ends a round of its worker. With a
// staleness of s, a worker's add number j, counted from 1, waits until every other worker has made
// j - s adds or finished, so no worker is ever more than s rounds ahead of the slowest. A get after
// j adds sees all of the worker's own adds and j - s to j + s adds of every unfinished worker. At a
// sync point workers may have made different numbers of calls, since all adds are applied anyway.
// In an elastic session, the others wait for a joiner from its first add on, and for no worker that
// is in a collective call or has ended.
#pragma once

#include "consistency/consistency.h"
#include "consistency/worker_clocks.h"
#include "consistency/worker_wait.h"

namespace multiverso {

class StalenessBound final : public Consistency {
 public:
  StalenessBound(uint64_t staleness, Shard* shard, WorkerClocks clocks)
      : staleness_(staleness), runner_(shard), clocks_(std::move(clocks)), wait_(&clocks_) {}

  Status Run(const Request& request, const WaitLimit& limit) override;
  void PassTo(RequestRunner* runner, RoundService* /*service*/) override { runner_ = runner; }
  bool HasRounds() const override { return true; }
  void Finish() override { clocks_.Finish(); }
  void ReachSyncPoint(const SyncPoint& point) override;
  void Depart() override { clocks_.Depart(); }
  // Waits until this node knows all adds that workers of other nodes made before the sync point.
  Status Settle(const WaitLimit& limit) override;
  std::vector<uint64_t> Clocks() const override { return clocks_.AllAdds(); }
  void StartFrom(uint64_t rounds) override { clocks_.StartFrom(rounds); }

 private:
  // Waits until this worker may make the call.
  Status AwaitBound(RequestKind kind, const WaitLimit& limit);

  uint64_t staleness_;
  RequestRunner* runner_;
  WorkerClocks clocks_;
  WorkerWait wait_;
  uint64_t sync_point_ = 0;  // the number of this worker's last sync point
};

}  // namespace multiverso
