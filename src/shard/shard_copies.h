// ShardCopies: copies the values of a shard for checkpoints and readers, as they are stored and
// without the updater. Each call takes the locks of the stripes that it copies one after the other.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "memory/streaming_copy.h"
#include "numbers/initializer.h"
#include "shard/shard.h"
#include "shard/storage.h"

namespace multiverso {

// Rows and elements are counted from the first one of the table.
class ShardCopies {
 public:
  explicit ShardCopies(const Shard* shard) : shard_(*shard) {}

  // An area has a number for each element: the parameters, and the state slots after them. The area
  // after these, for Updater::row_slots(), has a few for each row, so only whole rows are copied.
  static constexpr int64_t kParameters = 0;
  int64_t row_state() const { return shard_.state_slots() + 1; }
  // Copy `count` elements of an area from element `first` on. `next_read` says when the copied data
  // will be read. Without `values`, CopyIn sets the elements to 0.
  Status CopyOut(int64_t area, int64_t first, int64_t count, void* out, NextRead next_read,
                 const WaitLimit& limit) const;
  Status CopyIn(int64_t area, int64_t first, int64_t count, const void* values,
                const WaitLimit& limit) const;
  // For Shard::counts_steps(): copy the update counts of rows, one for each `rows_per_step` rows,
  // which is the largest count of these rows.
  Status CopyStepsOut(int64_t first_row, int64_t count, int64_t rows_per_step, uint32_t* steps,
                      const WaitLimit& limit) const;
  Status CopyStepsIn(int64_t first_row, int64_t count, int64_t rows_per_step, const uint32_t* steps,
                     const WaitLimit& limit) const;
  // For loads: gives rows that have been touched the values of `initializer` and no state. If its
  // values differ from those of the untouched rows, it touches these, too.
  Status Restart(int64_t first_row, int64_t count, const Initializer& initializer,
                 const WaitLimit& limit) const;
  // For readers: copies what they need of a stripe to the storage of another shard with the same
  // layout, whose rows are lazy, too: the touched rows and their keys.
  Status CopyStripeTo(int64_t stripe, const ShardStorage& to, const WaitLimit& limit) const;

 private:
  // Returns the address of elements in an area, and their bytes.
  char* AreaAt(int64_t area, int64_t first) const;
  int64_t AreaBytes(int64_t area, int64_t count) const;
  // Calls body(first row in the shard, count, index of their update count) for each run of rows
  // that share a stripe and an update count, under the stripe's lock.
  template <StripeUse kUse, class Body>
  Status ForEachStep(int64_t first_row, int64_t count, int64_t rows_per_step,
                     const WaitLimit& limit, Body body) const;

  const Shard& shard_;
};

}  // namespace multiverso
