// SyncPointCheck: whether the workers of all nodes have made the same calls on all tables when they
// meet in a call of everybody.
//
// On one node the workers compare their clocks on the way to the fence. Where they do not see each
// other's, each brings a number made of its counts to the meeting; if those differ, the clocks,
// which are on their way, say where.
#ifndef MULTIVERSO_CONSISTENCY_SYNC_POINT_CHECK_H_
#define MULTIVERSO_CONSISTENCY_SYNC_POINT_CHECK_H_

#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "base/status.h"
#include "consistency/consistency.h"
#include "group/group.h"
#include "group/node_group.h"

namespace multiverso {

// What a rank brings. Travels as bytes.
struct SyncPointArrival {
  uint64_t digest = 0;  // of the calls on all tables that count at the fence
  uint64_t calls = 0;   // their number
  int32_t is_worker = 0;
  int32_t has_finished = 0;

  // The calls on one table.
  void Count(int64_t table, const CallDigest& calls_on_it);
};

class SyncPointCheck {
 public:
  // Compares the tables' clocks: mismatch if it finds where workers differ, pending as long as it
  // does not know.
  using Compare = std::function<Status()>;

  SyncPointCheck() = default;
  SyncPointCheck(NodeGroup* group, const SyncPointArrival& mine, bool is_last, Compare compare)
      : group_(group), mine_(mine), is_last_(is_last), compare_(std::move(compare)) {}

  const SyncPointArrival& mine() const { return mine_; }
  // After a meeting of everybody to which each rank brought its SyncPointArrival, `offset` bytes
  // into what it brought. Mismatch on all ranks if the workers do not agree.
  Status Check(const Group& meeting, int64_t offset, const WaitLimit& limit);

 private:
  // The first two workers that do not agree.
  bool FindDifference(const Group& meeting, int64_t offset, int* one, int* other) const;

  NodeGroup* group_ = nullptr;  // null where there is nothing to check
  SyncPointArrival mine_;
  bool is_last_ = false;
  Compare compare_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_SYNC_POINT_CHECK_H_
