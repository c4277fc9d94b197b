// Updater: what an add does to the parameters. This is the only place where a delta is combined
// with a weight.
//
// The meaning of a delta depends on the updater: an increment, a gradient, or the worker's own
// parameters. The formulas are documented in make_updater.cc and optimizers.cc, and for users in
// docs/updaters.md.
#ifndef MULTIVERSO_SHARD_UPDATER_H_
#define MULTIVERSO_SHARD_UPDATER_H_

#include <cstdint>

#include "shard/hyper.h"

namespace multiverso {

// One run of consecutive elements. `state` holds Updater::state_slots() runs of as many elements
// each, `state_stride` bytes apart; zero before the first update.
struct Update {
  void* weights = nullptr;
  void* state = nullptr;
  int64_t state_stride = 0;
  const void* delta = nullptr;
  void* out = nullptr;  // receives the new weights; may equal delta or be null
  int64_t count = 0;
  int worker = -1;    // the worker whose delta it is; -1 for the sum of several workers' deltas
  int64_t terms = 1;  // the number of workers' deltas in the sum
  int64_t step = 1;   // the number of this update of these elements, from 1 (counts_steps())

  char* slot(int64_t number) const { return static_cast<char*>(state) + number * state_stride; }
  // Returns the part with `elements` elements from `first` on.
  Update Part(int64_t first, int64_t elements, int64_t element_bytes) const;
};

// An updater is stateless (state is in the shard), so one instance serves all threads. The caller
// holds the lock of the stripe or excludes other access to the elements in another way.
class Updater {
 public:
  virtual ~Updater() = default;

  virtual int64_t state_slots(int /*workers*/) const { return 0; }
  // Returns whether the formula uses Update::step.
  virtual bool counts_steps() const { return false; }
  // Returns whether NoteGet must be called with the parameters that each worker receives.
  virtual bool notes_gets() const { return false; }
  // Tells how to handle a row that one add names more than once. Consecutive updates equal one
  // update with the sum only if the updater is linear.
  enum class Duplicates { kOneByOne, kSummed, kRefused };
  virtual Duplicates duplicates() const { return Duplicates::kSummed; }

  virtual void Apply(const Hyper& hyper, const Update& update) const = 0;
  // Records that `update.worker` received `values`, update.count elements.
  virtual void NoteGet(const Update& /*update*/, const void* /*values*/) const {}

  // ---- For ParamSync. Its tensors are `current`; `last` holds their values at the last exchange.

  // Writes the delta that a worker of ParamSync adds into `last`.
  virtual void TakeDelta(const void* current, void* last, int64_t count) const = 0;
  // Turns `current` into the parameters with which the worker continues after the table has become
  // `table`.
  virtual void Settle(const Hyper& hyper, const void* table, void* current,
                      int64_t count) const = 0;
  // Performs TakeDelta, Apply and Settle in one loop, with `last` as `update.delta` and
  // `update.out`. Returns false if the updater has no such loop.
  virtual bool Exchange(const Update& /*update*/, void* /*current*/) const { return false; }
};

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_UPDATER_H_
