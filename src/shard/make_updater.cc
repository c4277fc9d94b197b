#include "shard/make_updater.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/text.h"
#include "shard/kernels.h"
#include "shard/optimizers.h"

namespace multiverso {
namespace {

// A loop over three streams (weights, delta, out) is slower than two loops over two streams while
// the data of the second loop is still in the first-level cache. Measurements show this from a few
// pages on.
constexpr int64_t kPieceBytes = int64_t{16} << 10;

// w += d
template <class T>
class AddUpdater final : public Updater {
 public:
  Duplicates duplicates() const override { return Duplicates::kOneByOne; }

  void Apply(const Hyper& /*hyper*/, const Update& update) const override {
    T* const weights = static_cast<T*>(update.weights);
    const T* const delta = static_cast<const T*>(update.delta);
    T* const out = static_cast<T*>(update.out);
    constexpr int64_t kPiece = kPieceBytes / static_cast<int64_t>(sizeof(T));
    if (out == nullptr) {
      kernels::Add(weights, delta, update.count);
    } else if (update.count <= kPiece) {
      kernels::AddGet(weights, delta, out, update.count);
    } else {
      for (int64_t at = 0; at < update.count; at += kPiece) {
        const int64_t piece = std::min(kPiece, update.count - at);
        kernels::Add(weights + at, delta + at, piece);
        std::memcpy(out + at, weights + at, static_cast<size_t>(piece) * sizeof(T));
      }
    }
  }

  void TakeDelta(const void* current, void* last, int64_t count) const override {
    kernels::Difference(static_cast<T*>(last), static_cast<const T*>(current),
                        static_cast<const T*>(last), count);
  }
  void Settle(const Hyper& /*hyper*/, const void* table, void* current,
              int64_t count) const override {
    std::memcpy(current, table, static_cast<size_t>(count) * sizeof(T));
  }
  // One loop saves passes over the data of an exchange, which is seldom in a cache.
  bool Exchange(const Update& update, void* current) const override {
    kernels::Exchange(static_cast<T*>(update.weights), static_cast<T*>(current),
                      static_cast<T*>(update.out), update.count);
    return true;
  }
};

}  // namespace

Result<std::unique_ptr<const Updater>> MakeUpdater(UpdaterKind kind, DType dtype) {
  using Made = Result<std::unique_ptr<const Updater>>;
  const auto number = static_cast<int32_t>(kind);
  if (number < 0 || number >= kUpdaterKinds) {
    return Status(Code::kValue,
                  StrCat("updater: expected 0 to ", kUpdaterKinds - 1, ", received ", number));
  }
  return WithType(dtype, [&](auto* null) -> Made {
    using T = std::remove_pointer_t<decltype(null)>;
    if (kind == UpdaterKind::kAdd) {
      return std::unique_ptr<const Updater>(std::make_unique<AddUpdater<T>>());
    }
    if constexpr (std::is_floating_point_v<T>) return MakeOptimizer<T>(kind);
    return Status(Code::kType, StrCat("updater '", NameOf(kind),
                                      "' works on float32 and float64 tables, received ",
                                      NameOf(dtype), ": integers can only be added ('add')"));
  });
}

}  // namespace multiverso
