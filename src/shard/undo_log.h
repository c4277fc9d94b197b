// UndoLog: lets another rank of the node finish a change that a rank died in the middle of.
//
// A rank that makes a change for another node makes it in parts: a stripe of a range, or a row of a
// list. It logs the elements of each part, and the state that belongs to them, before it changes
// them, under the lock of their stripe, in memory that the ranks of the node share. If it dies in a
// part, the rank that takes the lock over puts them back. So each part has been made or not, and
// the rank that takes the request over continues with the first one that has not been made.
#pragma once

#include <atomic>
#include <cstdint>

#include "shard/request.h"
#include "shard/storage.h"
#include "shard/stripe_layout.h"

namespace multiverso {

class UndoLog {
 public:
  // `storage` is attached.
  UndoLog(const ShardStorage& storage, const StripeLayout& layout, int64_t columns)
      : storage_(storage), layout_(layout), columns_(columns) {}

  // Begins the part of a change that has come to `position`, which changes these elements of the
  // shard, in one stripe: at most kMostUndoBytes.
  void Begin(int local_rank, const ChangeId& change, int64_t position, int64_t first,
             int64_t count) const;
  // Ends the part, after which the change has come to `position`. `result`, unless null, is the
  // element before an atomic change (IsAtomic).
  void Commit(int local_rank, int64_t position, const void* result, int64_t result_bytes) const;

  // Puts back what a dead holder of the stripe's lock was changing, and returns whether it was
  // making a part. The caller holds the lock, and encloses the call as a write.
  bool Undo(int64_t stripe) const;
  // Returns how far a dead rank has come with a change: 0 if its last part was of another change.
  int64_t PositionOf(int local_rank, const ChangeId& change) const;
  // Returns the result of the last part of a rank.
  uint64_t ResultOf(int local_rank) const;

 private:
  struct Header;

  static bool IsOf(const Header& header, const ChangeId& change);
  Header* HeaderOf(int local_rank) const;
  // Calls visit(address, bytes) for each part of the storage that belongs to these elements.
  template <class Visit>
  void VisitMemory(int64_t first, int64_t count, const Visit& visit) const;

  ShardStorage storage_;
  StripeLayout layout_;
  int64_t columns_;
};

}  // namespace multiverso
