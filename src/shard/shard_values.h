// ShardValues: the values of a shard, which are its parameters and the state of its updater, and
// the arithmetic on them, without locks.
//
// Elements and rows are counted from the first one of the shard, and an operation is for `count`
// elements from element `first` on. The caller holds the lock of their stripe, or excludes other
// access in another way. Reads may also run while others write, if the caller repeats them then.
#pragma once

#include <cstdint>
#include <memory>

#include "base/copy_bytes.h"
#include "base/dtype.h"
#include "numbers/half.h"
#include "numbers/updater.h"
#include "shard/lazy_rows.h"
#include "shard/request.h"
#include "shard/storage.h"
#include "shard/stripe_layout.h"

namespace multiverso {

class KeyIndex;

class ShardValues {
 public:
  // `storage` is attached to a segment, which must outlive the object. `first_row` is the table's
  // row at which the shard begins. `lazy` is null if the rows begin with what the parameters
  // contain, and `keys` is null if the rows have no keys. Parameters are stored as `dtype`;
  // everything else, as in requests, has its value type.
  ShardValues(const StripeLayout& layout, int64_t columns, DType dtype, const ShardStorage& storage,
              std::unique_ptr<const Updater> updater, int64_t first_row = 0,
              std::unique_ptr<const LazyRows> lazy = nullptr, const KeyIndex* keys = nullptr);

  const StripeLayout& layout() const { return layout_; }
  int64_t columns() const { return columns_; }
  int64_t first_row() const { return first_row_; }
  const ShardStorage& storage() const { return storage_; }
  const Updater& updater() const { return *updater_; }
  const LazyRows* lazy() const { return lazy_.get(); }
  const KeyIndex* keys() const { return keys_; }
  bool is_half() const { return is_half_; }
  // Returns the bytes of an element in requests and in state.
  int64_t value_bytes() const { return value_bytes_; }
  // Returns whether updates are counted: for the updater, or to round parameters of 16 bits.
  bool counts_steps() const { return counts_steps_; }
  // Returns whether updates are counted for each row.
  bool has_step_per_row() const { return has_step_per_row_; }
  // Returns whether the updater notes gets.
  bool notes_gets() const { return notes_gets_; }
  // Returns whether the update of a run of elements may be made in parts.
  bool MaySplitRuns() const { return !counts_steps_ && storage_.row_state_bytes() == 0; }

  // ---- The operations of a worker
  void GetRow(int64_t row, char* out) const {
    if (lazy_ != nullptr && !lazy_->IsTouched(row)) return CopyInitial(first_row_ + row, out);
    GetTouchedRow(row, out);
  }
  void GetTouchedRow(int64_t row, char* out) const;
  // Tells an updater that notes gets that the worker has received `values`.
  void NoteGet(int64_t first, const void* values, int64_t count, int worker) const;
  // `out`, unless null, gets the new parameters.
  void Add(int64_t first, const void* delta, void* out, int64_t count, int worker) const;
  // Adds to a row. The call has computed `rates`.
  void AddRow(int64_t row, const void* delta, StepRates* rates) const;
  void Store(int64_t first, const void* values, int64_t count) const;
  // Runs an exchange for a part of its range.
  void Exchange(const Request& exchange, int64_t first, int64_t count, int worker) const;
  // Runs an atomic request for an element.
  void ExchangeElement(const Request& request, int64_t at) const;

  // ---- The operations of sync mode
  void Copy(int64_t first, int64_t count, void* out) const {
    if (is_half_ || lazy_ != nullptr) return CopyConverted(first, count, out);
    CopyBytes(out, storage_.parameters() + first * value_bytes_,
              static_cast<size_t>(count * value_bytes_));
  }
  // Applies `delta`, which is the sum of `terms` workers' deltas. Rows of at most kMaxRowElements
  // are whole. The new parameters are computed in `out`, or in `scratch` if `out` is null or equals
  // `delta`, and then copied: overwriting whole cache lines that other cores have read is much
  // faster than modifying them in place. `scratch` has room for `count` elements.
  void Apply(int64_t first, const void* delta, int64_t terms, void* out, int64_t count,
             char* scratch) const;
  // Applies the delta a + b in one loop, which is faster than Apply with the sum. Returns false and
  // changes nothing if the updater has no loop for sums.
  bool ApplySum(int64_t first, const void* a, const void* b, void* out, int64_t count) const;

  // Copies the initial values of a row of the table or of a key.
  void CopyInitial(int64_t id, char* out) const;
  // Sets the state of a row to that before its first update.
  void ClearState(int64_t row) const;

 private:
  uint16_t* HalfAt(int64_t first) const {
    return reinterpret_cast<uint16_t*>(storage_.parameters()) + first;
  }
  // Copies parameters of 16 bits, or of which some may not be in memory.
  void CopyConverted(int64_t first, int64_t count, void* out) const;
  // Returns the number of an element for stochastic rounding.
  int64_t NumberOf(int64_t first) const;
  // Returns an update; without weights if they are 16 bits.
  Update UpdateAt(int64_t first, const void* delta, void* out, int64_t count) const;
  void ApplyUpdate(int64_t first, const Update& update) const {
    if (!MaySplitRuns()) return ApplyParts(first, update);
    ApplyStep(first, update);
  }
  // Passes the update to the updater row by row if rows have state of their own, and otherwise
  // split where the step differs.
  void ApplyParts(int64_t first, const Update& update) const;
  // Passes the update of a row to the updater. If updates are counted, each row has a count.
  void ApplyRow(int64_t row, Update* update) const;
  // Passes an update with the same step to the updater.
  void ApplyStep(int64_t first, const Update& update) const {
    if (is_half_) return ApplyHalfStep(first, update);
    updater_->Apply(*storage_.hyper(), update);
  }
  // For parameters of 16 bits, computes the new ones in float32 and rounds them.
  void ApplyHalfStep(int64_t first, const Update& update) const;

  StripeLayout layout_;
  int64_t columns_;
  DType dtype_;
  bool is_half_;
  int64_t value_bytes_;
  int64_t first_row_;
  ShardStorage storage_;
  std::unique_ptr<const Updater> updater_;
  bool counts_steps_;
  bool has_step_per_row_;
  bool notes_gets_;
  std::unique_ptr<const LazyRows> lazy_;
  const KeyIndex* keys_;
};

// What is called for each stripe or row is inline, since a file with failpoints is compiled alone.

inline Update ShardValues::UpdateAt(int64_t first, const void* delta, void* out,
                                    int64_t count) const {
  Update update;
  if (!is_half_) update.weights = storage_.parameters() + first * value_bytes_;
  update.state = storage_.state() + first * value_bytes_;
  update.state_stride = storage_.state_stride();
  update.delta = delta;
  update.out = out;
  update.count = count;
  return update;
}

inline void ShardValues::GetTouchedRow(int64_t row, char* out) const {
  if (is_half_) {
    half::ToFloat(dtype_, HalfAt(row * columns_), columns_, reinterpret_cast<float*>(out));
  } else {
    const int64_t row_bytes = layout_.row_bytes();
    CopyBytes(out, storage_.parameters() + row * row_bytes, static_cast<size_t>(row_bytes));
  }
}

inline void ShardValues::Add(int64_t first, const void* delta, void* out, int64_t count,
                             int worker) const {
  Update update = UpdateAt(first, delta, out, count);
  update.worker = worker;
  ApplyUpdate(first, update);
  if (out != nullptr && notes_gets_) NoteGet(first, out, count, worker);
}

inline void ShardValues::ApplyRow(int64_t row, Update* update) const {
  if (counts_steps_) update->step = storage_.step_cells().CountRow(row);
  update->row_state = storage_.row_state(row);
  ApplyStep(row * columns_, *update);
}

inline void ShardValues::AddRow(int64_t row, const void* delta, StepRates* rates) const {
  Update update = UpdateAt(row * columns_, delta, nullptr, columns_);
  update.rates = rates;
  if (counts_steps_ && !has_step_per_row_) return ApplyUpdate(row * columns_, update);
  ApplyRow(row, &update);
}

}  // namespace multiverso
