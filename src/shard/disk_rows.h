// DiskRows: a shard that lies in a file on a disk (memory/file_segment.h).
//
// Lazy rows take room on the disk when they are first changed, in groups of stripes: before a call
// changes a row, the disk has room for all that belongs to the row's group. Other tables take all
// room when they are created.
//
// A page that is not in memory would be read when a call comes to it, one after the other, and a
// disk reads many pages at a time. So a call says some thousand rows ahead what it is going to use.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/compiler.h"
#include "base/status.h"
#include "memory/segment.h"
#include "shard/storage.h"
#include "shard/stripe_layout.h"

namespace multiverso {

// The functions are thread-safe.
class DiskRows {
 public:
  // `storage` is attached to the segment, which outlives this object. `of_keys` are the areas of
  // the key index.
  DiskRows(const Segment* file, const StripeLayout& layout, const ShardStorage& storage,
           const std::vector<RowArea>& of_keys);

  // Reserve room on the disk for everything; for everything but the rows; and for the stripe with
  // that row. Return MemoryError if the disk has not enough.
  Status ReserveAll() const;
  Status ReserveAllButRows() const;
  Status ReserveStripeOf(int64_t row) const;
  // Reserves all for which there was room once, in files that were copied without their zeros.
  Status ReserveAgain() const;

  // Has the pages of `bytes` bytes at an address of the segment read, without waiting for them,
  // unless this process has used them lately.
  void Expect(const void* address, int64_t bytes) const;
  // Has the parameters of a row read, and with `state` all that belongs to it.
  void ExpectRow(int64_t row, bool state) const { ExpectRows(row, 1, state); }
  void ExpectRows(int64_t first, int64_t count, bool state) const;

 private:
  Status ReserveGroup(int64_t first_stripe) const;
  bool WasUsedLately(int64_t page) const;

  const Segment* file_;
  StripeLayout layout_;
  ShardStorage storage_;
  std::vector<RowArea> row_areas_;     // for each row
  std::vector<RowArea> stripe_areas_;  // for each stripe
  int64_t stripes_per_group_ = 1;
  // A bit for each page of the segment that has been used since the bits were last cleared. They
  // are cleared so often that the kernel has hardly dropped such a page from memory.
  Segment used_;
  mutable std::atomic<int64_t> num_used_{0};
  int64_t most_used_;
};

// Lets a loop over `count` rows of a list say some rows ahead which ones it comes to.
class RowsAhead {
 public:
  static constexpr int64_t kRows = 4096;

  // `disk` is null if the rows are in memory.
  RowsAhead(const DiskRows* disk, int64_t first, int64_t count)
      : next_(disk == nullptr ? count : first), count_(count) {}

  // The loop is at row `at`. Calls expect(first, end) for the next rows of the list, and returns
  // the row at which the loop must call this again: `count` if there are no more rows to name, so
  // that a loop over rows in memory makes one call.
  template <class Expect>
  MV_NOINLINE int64_t Advance(int64_t at, const Expect& expect) {
    const int64_t first = next_;
    next_ = std::max(first, std::min(count_, at + 2 * kRows));
    if (first < next_) expect(first, next_);
    return next_ == count_ ? count_ : next_ - kRows;
  }

 private:
  int64_t next_;
  int64_t count_;
};

}  // namespace multiverso
