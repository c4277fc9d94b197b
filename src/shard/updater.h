// Updater: what an add does to the parameters. The one place where a delta meets a weight.
#ifndef MULTIVERSO_SHARD_UPDATER_H_
#define MULTIVERSO_SHARD_UPDATER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "base/status.h"

namespace multiverso {

// The numbers are those of the C API (MV_UPDATER_ADD, ...).
enum class UpdaterKind : int32_t { kAdd = 0, kSgd = 1 };

const char* NameOf(UpdaterKind kind);

constexpr int kHyperCount = 8;
constexpr int kLearningRate = 0;  // index into Hyper

// Hyper-parameters, in the table's shared memory: one rank sets them, all ranks' next adds use
// them. Each value is read and written whole.
struct Hyper {
  std::atomic<double> value[kHyperCount];

  double learning_rate() const { return value[kLearningRate].load(std::memory_order_relaxed); }
};

// One run of consecutive elements. `state` holds Updater::state_slots() runs of as many elements
// each, `state_stride` bytes apart; zero before the first update.
struct Update {
  void* weights;
  void* state;
  int64_t state_stride;
  const void* delta;
  void* out;  // receives the new weights; may equal delta; null if nobody wants them
  int64_t count;
};

// Stateless itself (state is in the shard), so one instance serves all threads. The caller holds
// the lock of the stripe.
class Updater {
 public:
  virtual ~Updater() = default;
  virtual int64_t state_slots() const { return 0; }
  virtual void Apply(const Hyper& hyper, const Update& update) const = 0;
  // The same with what `current` has gained over `update.out` for the delta, which is not looked
  // at; both receive the new weights.
  virtual void Exchange(const Hyper& hyper, const Update& update, void* current) const = 0;
};

// The updater for a table. ValueError if the kind does not work on the dtype.
Result<std::unique_ptr<const Updater>> MakeUpdater(UpdaterKind kind, DType dtype);

// ValueError if `value` makes no sense for hyper-parameter `index`.
Status CheckHyper(int32_t index, double value);

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_UPDATER_H_
