#include "numbers/make_updater.h"

#include <type_traits>

#include "base/copy_bytes.h"
#include "base/supported.h"
#include "base/text.h"
#include "numbers/kernels.h"

namespace multiverso {
namespace {

// w += d
template <class T>
class AddUpdater final : public Updater {
 public:
  Duplicates duplicates(const Hyper& /*hyper*/) const override { return Duplicates::kOneByOne; }

  void Apply(const Hyper& /*hyper*/, const Update& update) const override {
    T* const weights = static_cast<T*>(update.weights);
    const T* const delta = static_cast<const T*>(update.delta);
    T* const out = static_cast<T*>(update.out);
    if (out == nullptr) {
      kernels::Add(weights, delta, update.count);
    } else {
      kernels::AddGet(weights, delta, out, update.count);
    }
  }

  void AddDelta(void* sum, const void* delta, int64_t count) const override {
    kernels::Add(static_cast<T*>(sum), static_cast<const T*>(delta), count);
  }

  // One loop keeps every new value in a register between its uses.
  bool ApplySum(const Update& update, const void* other_delta) const override {
    T* const weights = static_cast<T*>(update.weights);
    kernels::AddSum(weights, static_cast<const T*>(update.delta),
                    static_cast<const T*>(other_delta),
                    update.out == nullptr ? weights : static_cast<T*>(update.out), update.count);
    return true;
  }

  void TakeDelta(const void* current, const void* last, void* delta, int64_t count) const override {
    kernels::Difference(static_cast<T*>(delta), static_cast<const T*>(current),
                        static_cast<const T*>(last), count);
  }
  void Settle(const Hyper& /*hyper*/, const void* table, void* current,
              int64_t count) const override {
    CopyBytes(current, table, static_cast<size_t>(count) * sizeof(T));
  }
  void SettleWithResidual(const Hyper& /*hyper*/, const void* table, void* last, void* current,
                          int64_t count) const override {
    kernels::SettleAdding(static_cast<T*>(current), static_cast<T*>(last),
                          static_cast<const T*>(table), count);
  }
  // One loop saves passes over memory: the data of an exchange is seldom in a cache.
  bool Exchange(const Hyper& /*hyper*/, const Update& update, void* current) const override {
    kernels::Exchange(static_cast<T*>(update.weights), static_cast<T*>(current),
                      static_cast<T*>(update.out), update.count);
    return true;
  }
};

}  // namespace

Result<std::unique_ptr<const Updater>> MakeUpdater(UpdaterKind kind, DType dtype) {
  using Made = Result<std::unique_ptr<const Updater>>;
  const auto kind_number = static_cast<int32_t>(kind);
  if (kind_number < 0 || kind_number >= kUpdaterKinds) {
    return Status(Code::kValue,
                  StrCat("updater: expected 0 to ", kUpdaterKinds - 1, ", received ", kind_number));
  }
  return WithType(dtype, [&](auto* null) -> Made {
    using T = std::remove_pointer_t<decltype(null)>;
    if (kind == UpdaterKind::kAdd) {
      return std::unique_ptr<const Updater>(std::make_unique<AddUpdater<T>>());
    }
    if constexpr (std::is_floating_point_v<T>) return MakeOptimizer<T>(kind);
    return CheckSupported({Feature::kInteger, Feature::kUpdater});
  });
}

}  // namespace multiverso
