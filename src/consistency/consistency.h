// Consistency: decides which adds of other workers a worker's get may see.
//
// Each table passes its calls through a Consistency object. AsyncMode runs a call at once. Rounds
// (sync mode) and StalenessBound (bounded staleness) may wait.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "shard/shard.h"

namespace multiverso {

class RoundService;

// A collective call of all ranks (a barrier, the creation of a table, shutdown) as a table sees the
// call. In sync mode all workers must have made the same calls on the table before the sync point.
struct SyncPoint {
  uint64_t number = 0;    // the same on all ranks (Group::calls)
  const char* call = "";  // the name of the call, for messages
  bool is_last = false;   // no round follows the sync point
};

// The calls of a worker on a table that count at a sync point.
struct CallDigest {
  uint64_t count = 0;
  uint64_t digest = 0;  // of the kinds of the calls, in order
};

// Returns the error of an add after Finish.
inline Status AddAfterFinish() {
  return Status(Code::kState, "this worker has called finish() and takes part in no more rounds");
}

// One thread of a worker at a time makes the calls on a table, and a call waits to its end. What a
// function does by default is what async mode does.
class Consistency : public RequestRunner {
 public:
  // Runs a request when this worker may make the call, and counts the call.
  Status Run(const Request& request, const WaitLimit& limit) override = 0;
  // For tables on several nodes: passes requests to `runner` from now on, and not to this node's
  // shard. In sync mode these are only gets of values that this node does not have, after
  // Request::rounds rounds; a server that has begun a later round answers with a state error. On
  // the leader of a node, a waiting call does the work of `service`, which is null elsewhere.
  virtual void PassTo(RequestRunner* /*runner*/, RoundService* /*service*/) {}

  // ---- For arrays in the table's memory. Where a mode offers none, the functions set the pointer
  // to null and do nothing else. Sets *buffer to memory for a delta of the whole table, which an
  // add of that memory does not copy. Waits until this worker's last add of that memory has been
  // applied.
  virtual Status DeltaBuffer(void** buffer, const WaitLimit& /*limit*/) {
    *buffer = nullptr;
    return Status::Ok();
  }
  // Waits as a get does, and sets *values to the parameters, which do not change before this
  // worker's next add.
  virtual Status View(const void** values, const WaitLimit& /*limit*/) {
    *values = nullptr;
    return Status::Ok();
  }

  // Returns whether calls are parts of rounds, for which other workers wait.
  virtual bool HasRounds() const { return false; }
  // Announces that this worker joins no further rounds. The others then continue without it.
  virtual void Finish() {}
  virtual bool HasFinished() const { return false; }
  // Announces that this worker is about to join that collective call. Aborts the session with a
  // mismatch if a worker that has reached it has not made the same calls on the table.
  virtual void ReachSyncPoint(const SyncPoint& /*point*/) {}

  // ---- For workers on several nodes, which do not see each other's clocks at a sync point
  // Returns this worker's calls, which all workers must have made that have not finished.
  virtual CallDigest CallsBefore(const SyncPoint& /*point*/) const { return CallDigest(); }
  // Compares the workers' calls after all workers have reached the sync point. If they differ,
  // aborts the session with a mismatch, and returns it. Returns pending until all clocks arrived.
  virtual Status CompareAt(const SyncPoint& /*point*/) { return Status::Ok(); }
  // Announces that this worker has released the table.
  virtual void Depart() {}
  // Aborts the session with a mismatch, and returns it, if a worker will not make its adds of the
  // first `rounds` rounds, for whose values this worker waits, because it waits in another call.
  virtual Status CheckAdds(uint64_t /*rounds*/) { return Status::Ok(); }
  // Returns whether at least `rounds` rounds have been applied to the parameters.
  virtual bool HasApplied(uint64_t /*rounds*/) const { return true; }
  // Returns whether a change by a round after the first `rounds` rounds has begun.
  virtual bool HasBegun(uint64_t /*rounds*/) const { return false; }
  virtual uint64_t rounds_applied() const { return 0; }

  // ---- For checkpoints, while all workers are in the same collective call
  // Waits until the adds of all complete rounds have been applied.
  virtual Status Settle(const WaitLimit& /*limit*/) { return Status::Ok(); }
  // Returns each worker's number of adds, including those of earlier jobs; empty in async mode.
  virtual std::vector<uint64_t> Clocks() const { return {}; }
  // Makes `rounds`, the number in a loaded checkpoint, the clock of the fastest worker.
  virtual void StartFrom(uint64_t /*rounds*/) {}
};

// Async mode, in which no call waits for a worker. Ranks that are not workers use this class in
// every mode, because they take no part in rounds.
class AsyncMode final : public Consistency {
 public:
  explicit AsyncMode(Shard* shard) : runner_(shard) {}

  Status Run(const Request& request, const WaitLimit& limit) override {
    return runner_->Run(request, limit);
  }
  void PassTo(RequestRunner* runner, RoundService* /*service*/) override { runner_ = runner; }

 private:
  RequestRunner* runner_;
};

}  // namespace multiverso
