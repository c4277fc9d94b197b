// Shard: the part of a table on one node, and the only implementation of the operations on it.
//
// A shard is memory that this process has mapped plus the operations on that memory. Every rank of
// the node maps the memory and executes its operations itself, at the same time as other ranks. A
// shard knows nothing about ranks on other nodes, sessions or Python.
//
// An operation takes the locks of the stripes that it touches one after the other, never two at
// once, and skips them for short reads. So operations of different workers interleave between
// stripes, but no add is lost. An operation that waits for a lock until WaitLimit::slice_end
// returns pending and stores its position in its Progress. A call with the same arguments continues
// there. Apply, ApplySum, CopyUnlocked and Copy take no locks.
//
// A shard with lazy rows (lazy_rows.h) touches the rows of a request before the request changes
// them. Apply and ApplySum need rows that Touch has touched before.
#ifndef MULTIVERSO_SHARD_SHARD_H_
#define MULTIVERSO_SHARD_SHARD_H_

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "memory/robust_lock.h"
#include "memory/streaming_copy.h"
#include "shard/lazy_rows.h"
#include "shard/request.h"
#include "shard/storage.h"
#include "shard/stripe_layout.h"
#include "shard/tensor_list.h"
#include "shard/updater.h"

namespace multiverso {

// How far an operation has come: the number of stripes or row ids that are done.
struct Progress {
  int64_t done = 0;
  int32_t phase = 0;  // for callers that build one operation from several
};

// The process that runs operations: its mark in locks, the probe that tells whether another holder
// is alive, and its worker number, or -1 if the process is not a worker.
struct ShardUser {
  int local_rank = 0;
  const OwnerProbe* probe = nullptr;
  int worker = -1;
};

class Shard {
 public:
  // `storage` is attached to a segment. The segment and the probe must outlive the shard.
  // `first_row` is the table's row at which the shard begins. Requests count from the table's first
  // row. `lazy` is null if the rows begin with what the parameters contain. Parameters are stored
  // as `dtype`; everything else, as in requests, has its value type.
  Shard(const StripeLayout& layout, int64_t columns, DType dtype, const ShardStorage& storage,
        std::unique_ptr<const Updater> updater, ShardUser user, int64_t first_row = 0,
        std::unique_ptr<const LazyRows> lazy = nullptr);

  const StripeLayout& layout() const { return layout_; }
  Hyper* hyper() const { return storage_.hyper(); }
  const Updater& updater() const { return *updater_; }
  // Returns whether the shard counts updates: for its updater, or to round parameters of 16 bits.
  bool counts_steps() const { return counts_steps_; }
  Holders* holders() const { return storage_.holders(); }

  // Executes a checked request, or continues it from *progress.
  Status Run(const Request& request, Progress* progress, const WaitLimit& limit);

  // Applies a delta without locks, to `count` elements from element `first` of the shard on, for
  // callers that exclude other access to the elements. Rows of at most kMaxRowElements are whole.
  // `delta` is the sum of `terms` workers' deltas. The new parameters are computed in `out`, or in
  // `scratch` if `out` is null or equals `delta`, and then copied: overwriting whole cache lines
  // that other cores have read is much faster than modifying them in place. `scratch` has room for
  // `count` elements.
  void Apply(int64_t first, const void* delta, int64_t terms, void* out, int64_t count,
             char* scratch) const;
  // Does the same as Apply with the delta a + b, faster, if the updater has a loop for sums.
  // Returns false and changes nothing if it has none.
  bool ApplySum(int64_t first, const void* a, const void* b, void* out, int64_t count) const;
  // Executes a get (of rows or of the whole shard) without locks, for callers that exclude writers.
  void CopyUnlocked(const Request& request) const;
  // Copies `count` parameters from element `first` of the shard on, without locks.
  void Copy(int64_t first, int64_t count, void* out) const;
  // Returns the parameters as values, or null if they are stored in another type. The values of
  // untouched rows are not there.
  const char* values() const { return is_half_ ? nullptr : storage_.parameters(); }

  // Returns null if the shard has no lazy rows.
  const LazyRows* lazy() const { return lazy_.get(); }
  // Touches the rows that a request names, so that it can change them. Returns MemoryError, and
  // touches none, if there is not enough memory for them. A call that returns pending begins again.
  Status Touch(const Request& request, const WaitLimit& limit) const;

  // For checkpoints: copy a range of the parameters (area 0), as they are stored, or of state slot
  // `area` - 1, without the updater. `next_read` says when the copied data will be read.
  int64_t state_slots() const { return storage_.state_slots(); }
  Status CopyOut(int64_t area, int64_t first, int64_t count, void* out, Progress* progress,
                 const WaitLimit& limit, NextRead next_read = NextRead::kSoon);
  Status CopyIn(int64_t area, int64_t first, int64_t count, const void* values, Progress* progress,
                const WaitLimit& limit);
  // For Updater::row_slots(): copy the state of rows.
  Status CopyRowStateOut(int64_t first_row, int64_t count, void* out, Progress* progress,
                         const WaitLimit& limit);
  Status CopyRowStateIn(int64_t first_row, int64_t count, const void* values, Progress* progress,
                        const WaitLimit& limit);
  // For counts_steps(): copy the update counts of rows, one for each `rows_per_step` rows,
  // which is the largest count of these rows.
  Status CopyStepsOut(int64_t first_row, int64_t count, int64_t rows_per_step, uint32_t* steps,
                      Progress* progress, const WaitLimit& limit);
  Status CopyStepsIn(int64_t first_row, int64_t count, int64_t rows_per_step, const uint32_t* steps,
                     Progress* progress, const WaitLimit& limit);
  // For loads: gives rows that have been touched the values of `initializer` and no state. If its
  // values differ from those of the untouched rows, it touches these, too.
  Status Restart(int64_t first_row, int64_t count, const Initializer& initializer,
                 Progress* progress, const WaitLimit& limit);

 private:
  struct Elements {
    int64_t first;
    int64_t count;
    bool may_read_unlocked = false;  // a body that reads may run on torn values, and then again
  };

  // Calls body(first element in the shard, the same in the range, elements) for each stripe, under
  // its lock or, for short reads, without the lock.
  template <StripeUse kUse, class Body>
  Status ForEachStripe(const Elements& range, Progress* progress, const WaitLimit& limit,
                       Body body);
  Status GetRows(const Request& request, Progress* progress, const WaitLimit& limit) const;
  // Adds the rows in their order (RowOrder). A lock is held for some rows of a stripe at a time.
  Status AddRows(const Request& request, Progress* progress, const WaitLimit& limit) const;
  // Calls body(first row in the shard, count, index of their update count) for each run of rows
  // that share a stripe and an update count, under the stripe's lock.
  template <StripeUse kUse, class Body>
  Status ForEachStep(int64_t first_row, int64_t count, int64_t rows_per_step, Progress* progress,
                     const WaitLimit& limit, Body body);
  Status TakeStripe(int64_t stripe, const WaitLimit& limit) const;
  Status TouchIds(const Request& request, LazyRows::Room* room, const WaitLimit& limit) const;
  Status TouchRange(int64_t first, int64_t end, LazyRows::Room* room, const WaitLimit& limit) const;
  // Returns whether a request changes rows or, if the updater notes gets, the state of rows.
  bool MustTouch(const Request& request, int worker) const;
  // Returns the address and the bytes of elements in an area.
  char* AreaAt(int64_t area, int64_t first) const;
  int64_t AreaBytes(int64_t area, int64_t count) const;
  uint16_t* HalfAt(int64_t first) const;
  void CopyRow(int64_t row, char* out) const;
  // Copies the initial values of a row.
  void CopyUntouched(int64_t row, char* out) const;
  // Copies parameters to `out` and notes that `worker` has received them.
  void CopyToWorker(int64_t first, void* out, int64_t count, int worker) const;
  // Passes the parameters that `worker` received to the updater, if the updater notes gets.
  void NoteGet(int64_t first, const void* values, int64_t count, int worker) const;
  // Returns an update of elements from element `first` on; without weights if they are 16 bits.
  Update UpdateAt(int64_t first, const void* delta, void* out, int64_t count, int worker) const;
  // Passes the update to the updater, row by row if rows have state of their own, and split where
  // the step differs if the shard counts steps.
  void ApplyUpdate(int64_t first, const Update& update) const;
  // Passes the update of a row to the updater; the shard counts no steps or has a count per row.
  void ApplyRow(int64_t row, Update* update) const;
  // Passes an update with the same step to the updater, and rounds the new parameters if they are
  // stored in 16 bits.
  void ApplyStep(int64_t first, const Update& update) const;
  // Applies the update as ApplyUpdate does, and notes that its worker has received update.out.
  void ApplyAndNote(int64_t first, const Update& update) const;
  void ExchangeStripe(const TensorList& tensors, char* last, int64_t first, int64_t buffer_first,
                      int64_t count) const;
  bool MayReadUnlocked(int64_t count) const;

  StripeLayout layout_;
  int64_t columns_;
  DType dtype_;
  bool is_half_;
  int64_t value_bytes_;  // of an element in requests and state
  int64_t first_row_;
  ShardStorage storage_;
  std::unique_ptr<const Updater> updater_;
  bool counts_steps_;
  bool notes_gets_;
  ShardUser user_;
  std::unique_ptr<const LazyRows> lazy_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_SHARD_H_
