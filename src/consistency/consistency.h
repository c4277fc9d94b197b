// Consistency: what a worker's get may see of the other workers' adds.
//
// In async mode a call goes straight to the shard and nothing of this exists. In sync mode
// (SyncRounds) and with bounded staleness (StalenessBound) the calls of a table go through one of
// these, which waits for other workers as the mode asks.
#ifndef MULTIVERSO_CONSISTENCY_CONSISTENCY_H_
#define MULTIVERSO_CONSISTENCY_CONSISTENCY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "consistency/staging.h"
#include "group/rank_context.h"
#include "shard/shard.h"

namespace multiverso {

// The mode of a session. The numbers are those of the C API (MV_MODE_ASYNC, ...).
enum class Mode : int32_t { kAsync = 0, kSync = 1, kStale = 2 };

struct ModeOptions {
  Mode mode = Mode::kAsync;
  int64_t staleness = 0;  // in kStale: rounds a worker may be ahead of the slowest
};

// A collective call of all ranks (a barrier, the creation of a table, shutdown) as a table sees it:
// where the workers have made the same calls on the table, or never will.
struct SyncPoint {
  uint64_t number = 0;    // counted in the session, from 1
  const char* call = "";  // its name, for messages
  bool is_last = false;   // no round comes after it
};

// Calls of a worker on a table, as far as they count at a fence.
struct CallDigest {
  uint64_t number = 0;
  uint64_t digest = 0;  // of which they were, in their order
};

// The calls of one table, made by one thread of a worker at a time. Like the shard's, they return
// pending where they would wait past the slice, and continue from their progress.
class Consistency {
 public:
  virtual ~Consistency() = default;

  virtual Status Get(void* out, Progress* progress, const WaitLimit& limit) = 0;
  virtual Status Add(const void* delta, Progress* progress, const WaitLimit& limit) = 0;
  virtual Status AddGet(const void* delta, void* out, Progress* progress,
                        const WaitLimit& limit) = 0;
  virtual Status GetRows(const int64_t* rows, int64_t count, void* out, Progress* progress,
                         const WaitLimit& limit) = 0;
  virtual Status AddRows(const int64_t* rows, int64_t count, const void* delta, Progress* progress,
                         const WaitLimit& limit) = 0;
  // Shard::Exchange as one add and get, where the mode lets a worker change the parameters itself.
  virtual bool ExchangesInPlace() const { return false; }
  virtual Status Exchange(const TensorList& tensors, void* last, Progress* progress,
                          const WaitLimit& limit);
  // This worker joins no further rounds; the others go on without it.
  virtual void Finish() = 0;
  // This worker is about to join that call. Gives the session up, for a mismatch, if the workers'
  // calls on the table do not agree there.
  virtual void ReachSyncPoint(const SyncPoint& fence) = 0;

  // ---- Where workers are on several nodes, and do not see each other at the fence
  // Which of this worker's calls count there: the same on all workers that have not finished.
  virtual CallDigest CallsBefore(const SyncPoint& /*fence*/) const { return CallDigest(); }
  // All have come to it: mismatch if their calls do not agree; pending while the clocks of some
  // have not come.
  virtual Status CompareAt(const SyncPoint& /*fence*/) { return Status::Ok(); }
  // This worker has released the table.
  virtual void Depart() {}
  // How many rounds have been applied to what gets read, if they are applied one by one.
  virtual uint64_t rounds_applied() const { return 0; }
  // The two sides of a call that is made elsewhere: whether this worker may make it now, as the
  // `add` or the get that it is, and that its add has been applied.
  virtual Status Enter(bool /*add*/, const char* /*call*/, Progress* /*progress*/,
                       const WaitLimit& /*limit*/) {
    return Status::Ok();
  }
  virtual void CountAdd() {}

  // ---- For checkpoints, while all workers are in the same collective call
  // What has been added in complete rounds is applied.
  virtual Status Settle(const WaitLimit& /*limit*/) { return Status::Ok(); }
  // The adds of each worker, in worker order; with those of the job before.
  virtual std::vector<uint64_t> Clocks() const = 0;
  // The job before has made so many.
  virtual void StartFrom(uint64_t rounds) = 0;

  // Bytes of shared memory that a table of that shape needs for it, on a node that has
  // `workers_here` of the workers; 0 in async mode. MemoryError if they cannot be addressed.
  static Result<int64_t> BytesFor(const ModeOptions& options, const StagedShape& shape, int workers,
                                  int workers_here);
  // Over that memory, zero-filled at first. Null in async mode, and for ranks that are no workers.
  static std::unique_ptr<Consistency> Make(const ModeOptions& options, const StagedShape& shape,
                                           char* base, Shard* shard, RankContext* group,
                                           const std::string& table_name, bool is_worker);
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_CONSISTENCY_H_
