#include "shard/updater.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/text.h"
#include "shard/kernels.h"

namespace multiverso {
namespace {

// Three streams in one loop (weights, delta, out) run slower than two and two, as long as what goes
// through the second loop is still in the first-level cache. Measured: from a few pages on.
constexpr int64_t kPieceBytes = int64_t{16} << 10;

// update(weights, delta, count), then copy the new weights out, piece by piece. `out` may be delta.
template <class T, class Function>
void UpdateAndCopy(T* weights, const T* delta, T* out, int64_t count, Function update) {
  constexpr int64_t kPiece = kPieceBytes / static_cast<int64_t>(sizeof(T));
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t piece = std::min(kPiece, count - at);
    update(weights + at, delta + at, piece);
    std::memcpy(out + at, weights + at, static_cast<size_t>(piece) * sizeof(T));
  }
}

template <class T>
class AddUpdater final : public Updater {
 public:
  void Apply(const Hyper& /*hyper*/, const Update& update) const override {
    T* const weights = static_cast<T*>(update.weights);
    const T* const delta = static_cast<const T*>(update.delta);
    T* const out = static_cast<T*>(update.out);
    if (out == nullptr) {
      kernels::Add(weights, delta, update.count);
    } else if (update.count * static_cast<int64_t>(sizeof(T)) <= kPieceBytes) {
      kernels::AddGet(weights, delta, out, update.count);
    } else {
      UpdateAndCopy(weights, delta, out, update.count,
                    [](T* w, const T* d, int64_t n) { kernels::Add(w, d, n); });
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
    T* const out = static_cast<T*>(update.out);
    if (out == nullptr) {
      kernels::Descend(weights, delta, rate, update.count);
    } else if (update.count * static_cast<int64_t>(sizeof(T)) <= kPieceBytes) {
      kernels::DescendGet(weights, delta, out, rate, update.count);
    } else {
      UpdateAndCopy(weights, delta, out, update.count,
                    [rate](T* w, const T* d, int64_t n) { kernels::Descend(w, d, rate, n); });
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
                                           "received ",
                                           NameOf(dtype)));
      });
  }
  return Status(Code::kValue, StrCat("updater: expected one of 'add' and 'sgd', received number ",
                                     static_cast<int32_t>(kind)));
}

Status CheckHyper(int32_t index, double value) {
  if (index != kLearningRate) {
    return Status(Code::kValue,
                  StrCat("hyper-parameter: expected 0 (learning rate), received ", index));
  }
  if (!std::isfinite(value)) {
    return Status(Code::kValue,
                  StrCat("learning_rate: expected a finite number, received ", value));
  }
  return Status::Ok();
}

}  // namespace multiverso
