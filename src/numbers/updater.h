// Updater: what an add does to the parameters. Only updaters combine deltas with parameters.
//
// The meaning of a delta depends on the updater: an increment, a gradient, or the worker's own
// parameters. The formulas are in kernels.h and optimizer_kernels.h, their sources in
// optimizers.cc, and both for users in docs/updaters.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numbers/hyper.h"

namespace multiverso {

// Given an `out`, an optimizer updates the weights and copies them out in pieces of this size, so
// that each piece is still in the first-level cache when it is copied.
constexpr int64_t kUpdatePieceBytes = int64_t{16} << 10;

// What the corrections of Adam's moments make of the options in a step: the learning rate with both
// corrections, and the root of the second moment's, by which epsilon is multiplied to be added
// after it.
struct StepRate {
  double rate;
  double root;
};

// What an updater has computed for steps within a call.
class StepRates {
 public:
  // Returns compute(step), which is the same each time.
  template <class Compute>
  StepRate Of(int64_t step, Compute compute) {
    Entry& entry = entries_[static_cast<size_t>(step) % kEntries];
    if (entry.step != step) entry = Entry{step, compute(step)};
    return entry.rate;
  }

 private:
  static constexpr size_t kEntries = 64;
  struct Entry {
    int64_t step = -1;  // A step below 0 has no rate.
    StepRate rate;
  };
  Entry entries_[kEntries];
};

// The longest row of an updater with state per row: the longest one that Shard::Apply, which sums
// in pieces, gets as a whole.
constexpr int64_t kMaxRowElements = 2048;

// An update of consecutive elements. `state` holds Updater::state_slots() runs of as many elements
// each, `state_stride` bytes apart; zero before the first update.
struct Update {
  void* weights = nullptr;
  void* state = nullptr;
  int64_t state_stride = 0;
  const void* delta = nullptr;
  void* out = nullptr;        // receives the new weights; may equal delta or be null
  void* row_state = nullptr;  // Updater::row_slots() numbers; zero before the first update
  int64_t count = 0;
  int worker = -1;             // of an add or exchange of a range, the worker whose delta it is
  int64_t terms = 1;           // the number of workers' deltas in the sum
  int64_t step = 1;            // counts the updates of these elements from 1, for counts_steps()
  StepRates* rates = nullptr;  // of the call, if it makes many updates

  char* slot(int64_t index) const { return static_cast<char*>(state) + index * state_stride; }
  // Returns the update of `elements` of these elements, from `first` on.
  Update Part(int64_t first, int64_t elements, int64_t element_bytes) const {
    const int64_t offset = first * element_bytes;
    Update part = *this;
    if (weights != nullptr) part.weights = static_cast<char*>(weights) + offset;
    part.state = static_cast<char*>(state) + offset;
    part.delta = static_cast<const char*>(delta) + offset;
    if (out != nullptr) part.out = static_cast<char*>(out) + offset;
    part.count = elements;
    return part;
  }
};

// An updater has no state of its own (Update::state is in the shard), so one instance serves all
// threads. The caller holds the lock of the stripe or excludes other access in another way.
class Updater {
 public:
  virtual ~Updater() = default;

  virtual int64_t state_slots(int /*num_workers*/) const { return 0; }
  // Returns how many numbers of state each row has besides the slots. If there are any, each update
  // is of one row of at most kMaxRowElements elements.
  virtual int64_t row_slots() const { return 0; }
  // Returns whether the formula uses Update::step.
  virtual bool counts_steps() const { return false; }
  // Returns whether NoteGet must be called with the parameters that each worker receives. Such an
  // updater is for arrays in async mode on one node.
  virtual bool notes_gets() const { return false; }
  // Tells how to handle a row that one add names more than once. Consecutive updates equal one
  // update with the sum only if the updater is linear, which may depend on its options.
  enum class Duplicates { kOneByOne, kSummed, kRefused };
  virtual Duplicates duplicates(const Hyper& /*hyper*/) const { return Duplicates::kSummed; }

  virtual void Apply(const Hyper& hyper, const Update& update) const = 0;
  // Adds a delta to the sum of other deltas.
  virtual void AddDelta(void* sum, const void* delta, int64_t count) const = 0;
  // Performs Apply with the sum of update.delta and `other_delta` in one loop. Returns false if the
  // updater has no such loop.
  virtual bool ApplySum(const Update& /*update*/, const void* /*other_delta*/) const {
    return false;
  }
  // Records that `update.worker` received `values`, which are update.count elements.
  virtual void NoteGet(const Update& /*update*/, const void* /*values*/) const {}

  // ---- For ParamSync. Its tensors are `current`; `last` holds their values at the last exchange.

  // Writes the delta that ParamSync adds to the table. It may overwrite `last`.
  virtual void TakeDelta(const void* current, const void* last, void* delta,
                         int64_t count) const = 0;
  // Sets `current` to the parameters with which the worker continues. `table` holds the table's
  // parameters after the add.
  virtual void Settle(const Hyper& hyper, const void* table, void* current,
                      int64_t count) const = 0;
  // Sets `current` as Settle does, but so that the next delta includes `last`, the part of the
  // delta that was not added to the table. Then overwrites `last` with the table's parameters.
  virtual void SettleWithResidual(const Hyper& hyper, const void* table, void* last, void* current,
                                  int64_t count) const = 0;
  // Performs TakeDelta, Apply and Settle in one loop, with `last` as `update.delta` and
  // `update.out`. Returns false if the updater has no such loop.
  virtual bool Exchange(const Hyper& /*hyper*/, const Update& /*update*/, void* /*current*/) const {
    return false;
  }
};

}  // namespace multiverso
