// TableCreation: how the ranks make one table together.
//
// Three or four meetings. First everybody brings its spec; they must be equal. Then the first
// rank of each node has made the segment and brings its locator, or the reason why not. Then
// everybody has mapped it, or brings the reason why not. Last, if the master has an initial value,
// it has stored it. So whatever fails on one rank fails on all of them, with the same words, and
// leaves nothing behind.
//
// In a session that goes on without lost ranks, it is made by those who come to the first meeting:
// the first of them on each node makes the segment, and the first worker has the initial value. If
// one of those dies in the middle, the creation fails on all, and can be tried again.
#ifndef MULTIVERSO_TABLE_TABLE_CREATION_H_
#define MULTIVERSO_TABLE_TABLE_CREATION_H_

#include <memory>
#include <string>
#include <vector>

#include "base/operation.h"
#include "consistency/sync_point_check.h"
#include "memory/segment.h"
#include "shard/shard.h"
#include "table/table.h"

namespace multiverso {

class TableCreation final : public Operation {
 public:
  // `init_value` is spec.count() elements or null; it counts on the master only, and stays valid
  // until the operation has ended. `fence` checks what the workers did before it.
  TableCreation(const TableSpec& spec, int64_t id, const void* init_value, TableContext context,
                SyncPointCheck fence, Instant deadline);

  Status Step(const WaitLimit& limit) override;
  void Cancel(const std::string& reason) override;

  // After Step returned ok.
  std::shared_ptr<Table> TakeTable() { return std::move(table_); }

 private:
  enum class Phase { kCompare, kMap, kConfirm, kStore, kFilled };

  Status CompareSpecs();
  bool is_maker() const { return maker_ == context_.members->rank(); }
  // PeerLost, on all ranks, if that one has not come to the meeting just held.
  Status CheckCame(int rank, const char* task) const;
  // Makes the segment (on the first rank of the node) and says so.
  void ArriveWithSegment();
  // Maps what the first rank of the node made and says so.
  Status MapAndArrive();
  Status ConfirmAllMapped();
  // The master's part.
  Status Store(const WaitLimit& limit);

  TableSpec spec_;
  int64_t id_;
  const void* init_value_;
  TableContext context_;
  SyncPointCheck fence_;
  Phase phase_ = Phase::kCompare;
  Segment segment_;
  Status failure_;           // of this rank
  int maker_ = -1;           // the rank of this node that makes the segment
  std::vector<int> makers_;  // of all nodes
  int master_ = -1;          // the rank that has the initial value
  bool master_fills_ = false;
  Progress stored_;
  std::unique_ptr<Operation> storing_;
  std::shared_ptr<Table> table_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_TABLE_CREATION_H_
