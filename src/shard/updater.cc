#include "shard/updater.h"

#include <cmath>

#include "base/text.h"
#include "shard/kernels.h"

namespace multiverso {
namespace {

template <class T>
class AddUpdater final : public Updater {
 public:
  void Apply(const Hyper& /*hyper*/, const Update& update) const override {
    T* const weights = static_cast<T*>(update.weights);
    const T* const delta = static_cast<const T*>(update.delta);
    if (update.out == nullptr) {
      kernels::Add(weights, delta, update.count);
    } else {
      kernels::AddGet(weights, delta, static_cast<T*>(update.out), update.count);
    }
  }
};

template <class T>
class SgdUpdater final : public Updater {
 public:
  void Apply(const Hyper& hyper, const Update& update) const override {
    T* const weights = static_cast<T*>(update.weights);
    const T* const delta = static_cast<const T*>(update.delta);
    const T rate = static_cast<T>(hyper.learning_rate());
    if (update.out == nullptr) {
      kernels::Descend(weights, delta, rate, update.count);
    } else {
      kernels::DescendGet(weights, delta, static_cast<T*>(update.out), rate, update.count);
    }
  }
};

}  // namespace

const char* NameOf(UpdaterKind kind) {
  switch (kind) {
    case UpdaterKind::kAdd:
      return "add";
    case UpdaterKind::kSgd:
      return "sgd";
  }
  return "unknown";
}

Result<std::unique_ptr<const Updater>> MakeUpdater(UpdaterKind kind, DType dtype) {
  using Made = Result<std::unique_ptr<const Updater>>;
  switch (kind) {
    case UpdaterKind::kAdd:
      return WithType(dtype, [](auto* null) -> Made {
        using T = std::remove_pointer_t<decltype(null)>;
        return std::unique_ptr<const Updater>(std::make_unique<AddUpdater<T>>());
      });
    case UpdaterKind::kSgd:
      return WithType(dtype, [dtype](auto* null) -> Made {
        using T = std::remove_pointer_t<decltype(null)>;
        if constexpr (std::is_floating_point_v<T>) {
          return std::unique_ptr<const Updater>(std::make_unique<SgdUpdater<T>>());
        }
        return Status(Code::kValue, StrCat("updater 'sgd' works on float32 and float64 tables, "
                                           "received ", NameOf(dtype)));
      });
  }
  return Status(Code::kValue, StrCat("updater: expected one of 'add' and 'sgd', received number ",
                                     static_cast<int32_t>(kind)));
}

Status CheckHyper(int32_t index, double value) {
  if (index != kLearningRate) {
    return Status(Code::kValue, StrCat("hyper-parameter: expected 0 (learning rate), received ",
                                       index));
  }
  if (!std::isfinite(value)) {
    return Status(Code::kValue, StrCat("learning_rate: expected a finite number, received ",
                                       value));
  }
  return Status::Ok();
}

}  // namespace multiverso
