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
// A reader (ShardUser) has mapped the memory read-only. It never takes a lock, and repeats a read
// that a writer interfered with. It may only run requests that get values.
//
// The shard of a hash table is a KeyedShard, whose requests also name rows by keys.
//
// A shard with lazy rows (lazy_rows.h) touches the rows of a request before the request changes
// them. Apply and ApplySum need rows that Touch has touched before.
#ifndef MULTIVERSO_SHARD_SHARD_H_
#define MULTIVERSO_SHARD_SHARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "memory/robust_lock.h"
#include "memory/streaming_copy.h"
#include "shard/lazy_rows.h"
#include "shard/request.h"
#include "shard/row_saver.h"
#include "shard/storage.h"
#include "shard/stripe_layout.h"
#include "shard/tensor_list.h"
#include "shard/updater.h"
#include "shard/wire_format.h"

namespace multiverso {

// How far a get that gives rows to keys has come, so that a get that is continued counts no key
// twice.
struct KeyFetch {
  std::vector<int64_t> missing;  // the positions of the keys that had no row
  size_t counted = 0;            // of the missing keys, for admission
  std::vector<int64_t> admitted;
  size_t noted = 0;  // of the missing keys, whose values the updater notes again
};

// How far an operation has come: the number of stripes or row ids that are done.
struct Progress {
  int64_t done = 0;
  int32_t phase = 0;                // for callers that build one operation from several
  std::unique_ptr<KeyFetch> fetch;  // null unless a get of keys has to be continued
};

// The process that runs operations: its mark in locks, the probe that tells whether another holder
// is alive, and its worker number, or -1 if the process is not a worker.
struct ShardUser {
  int local_rank = 0;
  const OwnerProbe* probe = nullptr;
  int worker = -1;
  bool is_reader = false;
};

class KeyedShard;

class Shard {
 public:
  // `storage` is attached to a segment. The segment and the probe must outlive the shard.
  // `first_row` is the table's row at which the shard begins. Requests count from the table's first
  // row. `lazy` is null if the rows begin with what the parameters contain. Parameters are stored
  // as `dtype`; everything else, as in requests, has its value type.
  Shard(const StripeLayout& layout, int64_t columns, DType dtype, const ShardStorage& storage,
        std::unique_ptr<const Updater> updater, ShardUser user, int64_t first_row = 0,
        std::unique_ptr<const LazyRows> lazy = nullptr);
  virtual ~Shard() = default;
  Shard(Shard&&) = default;

  // Returns this shard if its rows have keys, and null otherwise.
  virtual KeyedShard* AsKeyed() { return nullptr; }

  const StripeLayout& layout() const { return layout_; }
  Hyper* hyper() const { return storage_.hyper(); }
  const Updater& updater() const { return *updater_; }
  // Returns whether the shard counts updates: for its updater, or to round parameters of 16 bits.
  bool counts_steps() const { return counts_steps_; }
  Holders* holders() const { return storage_.holders(); }

  // Executes a checked request, or continues it from *progress.
  virtual Status Run(const Request& request, Progress* progress, const WaitLimit& limit);
  // Executes or continues a get, add or add_get of a range of float32 values, of which `delta` and
  // `out` have other formats; that of `out` is not int8. Values are encoded and decoded in pieces
  // that stay in the first-level cache. Sets *fits to false if the format cannot represent all
  // values of `out`, which is then undefined. The delta has been added in any case.
  Status RunEncoded(const Request& request, WireFormat delta_format, WireFormat out_format,
                    Progress* progress, const WaitLimit& limit, bool* fits);

  // Applies a delta without locks, to `count` elements from element `first` of the shard on, for
  // callers that exclude other access to the elements. Rows of at most kMaxRowElements are whole.
  // `delta` is the sum of `terms` workers' deltas. The new parameters are computed in `out`, or in
  // `scratch` if `out` is null or equals `delta`, and then copied: overwriting whole cache lines
  // that other cores have read is much faster than modifying them in place. `scratch` has room for
  // `count` elements.
  void Apply(int64_t first, const void* delta, int64_t terms, void* out, int64_t count,
             char* scratch) const;
  // Applies the delta a + b in one loop, which is faster than Apply with the sum. Returns false and
  // changes nothing if the updater has no loop for sums.
  bool ApplySum(int64_t first, const void* a, const void* b, void* out, int64_t count) const;
  // Executes a get (of rows or of the whole shard) without locks, for callers that exclude writers.
  void CopyUnlocked(const Request& request) const;
  // Copies `count` parameters from element `first` of the shard on, without locks.
  void Copy(int64_t first, int64_t count, void* out) const;
  // Returns the version that the next changes note.
  uint64_t version() const { return storage_.version()->load(std::memory_order_relaxed); }
  // Returns the parameters as values, or null if they are stored in another type. The values of
  // untouched rows are not there.
  const char* values() const { return is_half_ ? nullptr : storage_.parameters(); }

  // Returns the parameters as they are stored.
  const char* parameters() const { return storage_.parameters(); }

  // Returns null if the shard has no lazy rows.
  const LazyRows* lazy() const { return lazy_.get(); }
  // Returns null if the ranks of this node save no rows.
  const RowSaver* saver() const { return storage_.savers() > 0 ? &saver_ : nullptr; }
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
  // For readers: copies what they need of a stripe to the storage of another shard with the same
  // layout, whose rows are lazy, too: the touched rows and their keys.
  Status CopyStripeTo(int64_t stripe, const ShardStorage& to, const WaitLimit& limit) const;
  // For loads: gives rows that have been touched the values of `initializer` and no state. If its
  // values differ from those of the untouched rows, it touches these, too.
  Status Restart(int64_t first_row, int64_t count, const Initializer& initializer,
                 Progress* progress, const WaitLimit& limit);

 protected:
  Status TakeStripe(int64_t stripe, const WaitLimit& limit) const;
  // Runs read(), which copies from a stripe, again and again until no writer interferes.
  Status ReadRepeatedly(int64_t stripe, const WaitLimit& limit,
                        const std::function<void()>& read) const;
  // Adds the rows in their order (RowOrder). A lock is held for some rows of a stripe at a time.
  template <class Places>
  Status AddRows(const Request& request, const Places& places, Progress* progress,
                 const WaitLimit& limit) const;
  void ClearState(int64_t row) const;
  void CopyStored(int64_t row, char* out) const;
  // Passes the parameters that `worker` received to the updater, if the updater notes gets.
  void NoteGet(int64_t first, const void* values, int64_t count, int worker) const;
  bool MayReadUnlocked(int64_t count) const;

  // A KeyedShard does more in each of these four:
  // Notes a change of elements without the locks of their stripes.
  virtual void NoteChanges(int64_t first, int64_t count) const;
  // Returns the number of an element for stochastic rounding.
  virtual int64_t NumberOf(int64_t first) const { return first_row_ * columns_ + first; }
  // Makes a stripe consistent whose lock a dead rank held. Returns whether another rank will make
  // the change that the dead rank was making.
  virtual bool Recover(int64_t stripe) const { return saver_.Restore(stripe); }
  // Copies what CopyStripeTo copies besides the rows.
  virtual void CopyIndexTo(int64_t /*stripe*/, const ShardStorage& /*to*/) const {}

  StripeLayout layout_;
  int64_t columns_;
  DType dtype_;
  bool is_half_;
  int64_t value_bytes_;  // of an element in requests and state
  int64_t first_row_;
  ShardStorage storage_;
  RowSaver saver_;
  std::unique_ptr<const Updater> updater_;
  bool counts_steps_;
  bool notes_gets_;
  ShardUser user_;
  std::unique_ptr<const LazyRows> lazy_;

 private:
  struct PlacesOfRows;

  struct Elements {
    int64_t first;
    int64_t count;
    bool may_read_unlocked = false;  // a body that reads may run on torn values, and then again
    int64_t width = 0;               // Request::width
    ChangeId change = {};            // Request::change
    const void* result = nullptr;    // of an atomic request: where the body writes it
  };

  // Calls body(first element in the shard, the same in the range, elements) for each stripe, or for
  // each of its runs of elements, under its lock or, for short reads, without the lock.
  template <StripeUse kUse, class Body>
  Status ForEachStripe(const Elements& range, Progress* progress, const WaitLimit& limit,
                       Body body);
  Status GetRows(const Request& request, Progress* progress, const WaitLimit& limit) const;
  // Calls body(first row in the shard, count, index of their update count) for each run of rows
  // that share a stripe and an update count, under the stripe's lock.
  template <StripeUse kUse, class Body>
  Status ForEachStep(int64_t first_row, int64_t count, int64_t rows_per_step, Progress* progress,
                     const WaitLimit& limit, Body body);
  static Elements ElementsOf(const Request& request) {
    return Elements{request.first, request.count,  /*may_read_unlocked=*/true,
                    request.width, request.change, IsAtomic(request.kind) ? request.out : nullptr};
  }
  // Returns whether the steps of a change are saved.
  bool Saves(const ChangeId& change) const { return change.number != 0 && storage_.savers() > 0; }
  Status TouchIds(const Request& request, LazyRows::Room* room, const WaitLimit& limit) const;
  Status TouchRange(int64_t first, int64_t end, LazyRows::Room* room, const WaitLimit& limit) const;
  // Returns whether a request changes rows or, if the updater notes gets, the state of rows.
  bool MustTouch(const Request& request, int worker) const;
  Status CopyVersions(const Request& request, const WaitLimit& limit) const;
  // Returns the address and the bytes of elements in an area.
  char* AreaAt(int64_t area, int64_t first) const;
  int64_t AreaBytes(int64_t area, int64_t count) const;
  uint16_t* HalfAt(int64_t first) const;
  void CopyRow(int64_t row, char* out) const;
  // Copies the initial values of a row.
  void CopyUntouched(int64_t row, char* out) const;
  // Copies parameters to `out` and notes that `worker` has received them.
  void CopyToWorker(int64_t first, void* out, int64_t count, int worker) const;
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
  // Runs an atomic request for an element of the shard.
  void ExchangeElement(const Request& request, int64_t at) const;
  // Returns the longest part of a run of elements that an update may be split into.
  int64_t PieceOf(int64_t count) const;
  void ExchangeStripe(const Request& request, int64_t first, int64_t count) const;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_SHARD_H_
