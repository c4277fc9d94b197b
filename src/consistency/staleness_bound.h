// StalenessBound: bounded staleness, after the stale synchronous parallel model of Ho et al.,
// "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013.
//
// Adds are applied at once, as in async mode. An add ends the worker's round. Add number j waits
// until every other worker has made j - s adds, so that no worker is ever more than s rounds ahead
// of the slowest. A get after j adds therefore sees at least j - s adds of every other worker, all
// of the worker's own, and perhaps more, but never more than j + s of anybody.
#ifndef MULTIVERSO_CONSISTENCY_STALENESS_BOUND_H_
#define MULTIVERSO_CONSISTENCY_STALENESS_BOUND_H_

#include "consistency/consistency.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

class StalenessBound final : public Consistency {
 public:
  StalenessBound(uint64_t staleness, Shard* shard, WorkerClocks clocks)
      : staleness_(staleness), shard_(shard), clocks_(std::move(clocks)) {}

  Status Get(void* out, Progress* progress, const WaitLimit& limit) override;
  Status Add(const void* delta, Progress* progress, const WaitLimit& limit) override;
  Status AddGet(const void* delta, void* out, Progress* progress, const WaitLimit& limit) override;
  Status GetRows(const int64_t* rows, int64_t count, void* out, Progress* progress,
                 const WaitLimit& limit) override;
  Status AddRows(const int64_t* rows, int64_t count, const void* delta, Progress* progress,
                 const WaitLimit& limit) override;
  bool ExchangesInPlace() const override { return true; }
  Status Exchange(const TensorList& tensors, void* last, Progress* progress,
                  const WaitLimit& limit) override;
  void Finish() override { clocks_.Finish(); }
  // Workers may have made different numbers of calls, and all of them are applied.
  void ReachSyncPoint(const SyncPoint& /*fence*/) override {}
  Status Enter(bool add, const char* call, Progress* progress, const WaitLimit& limit) override;
  void CountAdd() override;
  std::vector<uint64_t> Clocks() const override { return clocks_.AllAdds(); }
  void StartFrom(uint64_t rounds) override { clocks_.StartFrom(rounds); }

 private:
  // Waits until every other worker has made `adds` - staleness adds: when this one may make, or may
  // read after, that many.
  Status WaitFor(uint64_t adds, const char* call, Progress* progress, const WaitLimit& limit);
  Status CheckCanAdd() const;

  uint64_t staleness_;
  Shard* shard_;
  WorkerClocks clocks_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_STALENESS_BOUND_H_
