// The comparison of the workers' calls on one table, which must be the same in sync mode.
//
// A worker compares each of its ticks with the same tick of the others, and at a sync point its
// number of calls. If calls differ, each of these functions aborts the session with a mismatch.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "consistency/consistency.h"
#include "consistency/worker_clocks.h"

namespace multiverso {

struct WorkersCall {
  int worker = 0;
  const char* call = "";
};

// Aborts the session with a mismatch, and returns it. The worker that is behind has not made the
// other's call, but the one that is stated here.
Status AbortWithMismatch(const WorkerClocks& clocks, WorkersCall behind, WorkersCall other);

// Makes a tick of this worker and compares it. WorkerWait::AwaitTicks has allowed it.
Status TickAndCompare(WorkerClocks* clocks, TickKind kind);

// Announces that this worker has reached the sync point. Compares its number of ticks with those
// of the other workers that are there. At the last sync point only adds count, because a worker may
// read the result on its own, but an add that the others do not make would be lost.
void ArriveAndCompare(WorkerClocks* clocks, const SyncPoint& point);

// Compares all pairs of workers at the sync point. Returns pending while some worker, as far as
// this node knows, has not reached it.
Status CompareAllAt(const WorkerClocks& clocks, const SyncPoint& point);

// Compares `call`, in which this worker waits for the first `rounds` rounds, with the collective
// call of a worker that waits there and has not made its adds of these rounds.
Status CompareAdds(const WorkerClocks& clocks, uint64_t rounds, const char* call);

// For the leader of a node: stores the clock of a worker of another node, and compares its new
// ticks with those of this node's workers.
void StoreAndCompare(WorkerClocks* clocks, int worker, const WorkerClocks::Snapshot& snapshot);

}  // namespace multiverso
