// Updater: what an add does to the parameters. The one place where a delta meets a weight.
//
// What a delta is depends on the updater: an increment, a gradient, or the worker's own parameters.
// The formulas are at the updaters in updater.cc and optimizers.cc, and for users in
// docs/updaters.md.
#ifndef MULTIVERSO_SHARD_UPDATER_H_
#define MULTIVERSO_SHARD_UPDATER_H_

#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "base/status.h"
#include "shard/hyper.h"

namespace multiverso {

// One run of consecutive elements. `state` holds Updater::state_slots() runs of as many elements
// each, `state_stride` bytes apart; zero before the first update.
struct Update {
  void* weights = nullptr;
  void* state = nullptr;
  int64_t state_stride = 0;
  const void* delta = nullptr;
  void* out = nullptr;  // receives the new weights; may equal delta; null if nobody wants them
  int64_t count = 0;
  int worker = -1;    // whose delta it is; -1 if it is the sum of several workers'
  int64_t terms = 1;  // how many workers' deltas it is the sum of
  int64_t step = 1;   // which update of these elements this is, from 1, for Updater::counts_steps()

  char* slot(int64_t number) const { return static_cast<char*>(state) + number * state_stride; }
  // The part of `elements` elements from `first` on.
  Update Part(int64_t first, int64_t elements, int64_t element_bytes) const;
};

// Stateless itself (state is in the shard), so one instance serves all threads. The caller holds
// the lock of the stripe, or sees to it otherwise that nobody else is at the elements.
class Updater {
 public:
  virtual ~Updater() = default;

  virtual int64_t state_slots(int /*workers*/) const { return 0; }
  // Whether Update::step matters.
  virtual bool counts_steps() const { return false; }
  // Whether NoteGet must be told what every worker has been given.
  virtual bool notes_gets() const { return false; }
  // What becomes of a row that one add names more than once. Updates one after the other are the
  // same as one with the sum only where the updater is linear.
  enum class Duplicates { kOneByOne, kSummed, kRefused };
  virtual Duplicates duplicates() const { return Duplicates::kSummed; }

  virtual void Apply(const Hyper& hyper, const Update& update) const = 0;
  // `update.worker` has been given `values`, of update.count elements.
  virtual void NoteGet(const Update& /*update*/, const void* /*values*/) const {}

  // ---- For ParamSync, whose tensors are `current` and were `last` when they last met the table.

  // Puts what such a worker adds into `last`.
  virtual void TakeDelta(const void* current, void* last, int64_t count) const = 0;
  // Makes of `current` what such a worker goes on with, when the table has become `table`.
  virtual void Settle(const Hyper& hyper, const void* table, void* current,
                      int64_t count) const = 0;
  // Both around Apply with `last` as delta and out, where there is one loop for it; else false.
  virtual bool Exchange(const Update& /*update*/, void* /*current*/) const { return false; }
};

// The updater for a table. TypeError if it does not work on the dtype, ValueError if there is none.
Result<std::unique_ptr<const Updater>> MakeUpdater(UpdaterKind kind, DType dtype);

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_UPDATER_H_
