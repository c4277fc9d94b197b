// Consistency: which adds of other workers a worker's get may see.
//
// Each table has one, and its calls pass through it: AsyncMode runs them at once, SyncRounds and
// ReplicaRounds (sync mode) and StalenessBound (bounded staleness) wait for other workers first.
#ifndef MULTIVERSO_CONSISTENCY_CONSISTENCY_H_
#define MULTIVERSO_CONSISTENCY_CONSISTENCY_H_

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "shard/shard.h"

namespace multiverso {

// The mode of a session. The numbers are those of the C API (MV_MODE_ASYNC, ...).
enum class Mode : int32_t { kAsync = 0, kSync = 1, kStale = 2 };

struct ModeOptions {
  Mode mode = Mode::kAsync;
  int64_t staleness = 0;  // in kStale: rounds a worker may be ahead of the slowest
};

// A collective call of all ranks (a barrier, the creation of a table, shutdown) as a table sees it:
// all workers must have made the same calls on the table before it.
struct SyncPoint {
  uint64_t number = 0;    // counted in the session, from 1
  const char* call = "";  // its name, for messages
  bool is_last = false;   // no round follows it
};

// The calls of a worker on a table that count at a sync point.
struct CallDigest {
  uint64_t number = 0;
  uint64_t digest = 0;  // of the kinds of the calls, in order
};

// One thread of a worker at a time makes the calls on a table. Like those of the shard, they return
// pending where they would wait past the slice, and continue from their progress. The defaults are
// those of a mode without rounds.
class Consistency {
 public:
  virtual ~Consistency() = default;

  // Runs the request on this node's shard.
  virtual Status Run(const Request& request, Progress* progress, const WaitLimit& limit) = 0;
  // Both are for requests that servers of several nodes run. The first is called before the request
  // and waits until this worker may make the call. The second is called after it and records it.
  virtual Status Enter(RequestKind /*kind*/, Progress* /*progress*/, const WaitLimit& /*limit*/) {
    return Status::Ok();
  }
  virtual void Leave(RequestKind /*kind*/) {}

  // Whether calls are parts of rounds, for which other workers wait.
  virtual bool HasRounds() const { return true; }
  // Whether Run accepts kExchange; otherwise the caller uses kAddGet.
  virtual bool ExchangesInPlace() const { return false; }
  // This worker joins no further rounds; the others continue without it.
  virtual void Finish() {}
  // This worker is about to join that call. Aborts the session, with a mismatch, if the workers'
  // calls on the table do not agree there.
  virtual void ReachSyncPoint(const SyncPoint& /*point*/) {}

  // ---- Where workers are on several nodes and do not see each other at the sync point
  // This worker's calls that count there: the same on all workers that have not finished.
  virtual CallDigest CallsBefore(const SyncPoint& /*point*/) const { return CallDigest(); }
  // After all workers have reached it: mismatch if their calls do not agree; pending while the
  // clocks of some have not arrived.
  virtual Status CompareAt(const SyncPoint& /*point*/) { return Status::Ok(); }
  // This worker has released the table.
  virtual void Depart() {}
  // Whether that many rounds have been applied to the parameters.
  virtual bool HasApplied(uint64_t /*rounds*/) const { return true; }
  virtual uint64_t rounds_applied() const { return 0; }

  // ---- For checkpoints, while all workers are in the same collective call
  // Applies the adds of complete rounds.
  virtual Status Settle(const WaitLimit& /*limit*/) { return Status::Ok(); }
  // The adds of each worker, in worker order, with those of earlier jobs.
  virtual std::vector<uint64_t> Clocks() const { return {}; }
  // Earlier jobs have made so many rounds.
  virtual void StartFrom(uint64_t /*rounds*/) {}
};

// Async mode: nothing waits. Ranks that are not workers have it in every mode.
class AsyncMode final : public Consistency {
 public:
  explicit AsyncMode(Shard* shard) : shard_(shard) {}

  Status Run(const Request& request, Progress* progress, const WaitLimit& limit) override {
    return shard_->Run(request, progress, limit);
  }
  bool HasRounds() const override { return false; }
  bool ExchangesInPlace() const override { return true; }

 private:
  Shard* shard_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_CONSISTENCY_H_
