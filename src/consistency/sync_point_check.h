// SyncPointCheck: checks at a collective call of all ranks that the workers of all nodes have made
// the same calls on all tables, which sync mode requires.
//
// On one node the workers compare their clocks before the collective call. Workers of different
// nodes do not see each other's clocks in time, so each contributes a digest of its calls. If the
// digests differ, the check waits briefly for the clocks that are in flight, because the clocks
// show where the calls differ.
#pragma once

#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "base/status.h"
#include "consistency/consistency.h"
#include "group/group.h"
#include "group/rank_context.h"

namespace multiverso {

// A rank's payload in the allgather of the collective call. It travels as bytes.
struct SyncPointArrival {
  uint64_t digest = 0;  // of the calls on all tables up to the sync point
  uint64_t calls = 0;   // the number of those calls
  int32_t is_worker = 0;
  int32_t has_finished = 0;

  // Adds the calls on one table to `digest` and `calls`.
  void Count(int64_t table, const CallDigest& table_calls);
};

class SyncPointCheck {
 public:
  // Compares the tables' clocks. Returns a mismatch if the calls of two workers differ, and pending
  // while some clocks have not arrived.
  using Compare = std::function<Status()>;

  SyncPointCheck() = default;
  SyncPointCheck(RankContext* context, const SyncPointArrival& mine, bool is_last, Compare compare)
      : context_(context), mine_(mine), is_last_(is_last), compare_(std::move(compare)) {}

  const SyncPointArrival& mine() const { return mine_; }
  // Call this after an allgather of all ranks whose payloads hold a SyncPointArrival at `offset`.
  // Returns a mismatch on all ranks if the workers disagree.
  Status Check(const Group& world, int64_t offset, const WaitLimit& limit);

 private:
  // Finds a worker that disagrees with the first unfinished one. Returns false if all agree.
  bool FindDifference(const Group& world, int64_t offset, int* first, int* other) const;

  RankContext* context_ = nullptr;  // null if the check is not needed
  SyncPointArrival mine_;
  bool is_last_ = false;
  Compare compare_;
};

}  // namespace multiverso
