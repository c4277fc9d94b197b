#include "shard/tensor_exchange.h"

#include <cstring>
#include <type_traits>

namespace multiverso {

void Scale(DType dtype, void* values, int64_t count, double factor) {
  const auto scale = [&](auto* numbers) {
    for (int64_t i = 0; i < count; ++i) {
      numbers[i] = static_cast<std::remove_pointer_t<decltype(numbers)>>(numbers[i] * factor);
    }
  };
  if (dtype == DType::kFloat64) {
    scale(static_cast<double*>(values));
  } else {
    scale(static_cast<float*>(values));
  }
}

void TensorExchange::TakeDelta(int64_t first, int64_t count) const {
  tensors_.ForEachPart(first, count, [&](void* part, int64_t done, int64_t elements) {
    updater_.TakeDelta(part, last(first + done), elements);
  });
  if (scale_ != 1) Scale(tensors_.dtype(), last(first), count, scale_);
}

void TensorExchange::Settle(int64_t first, int64_t count) const {
  tensors_.ForEachPart(first, count, [&](void* part, int64_t done, int64_t elements) {
    updater_.Settle(hyper_, last(first + done), part, elements);
  });
}

void TensorExchange::SettleWithResidual(int64_t first, int64_t count, const char* values) const {
  const int64_t element_bytes = SizeOf(tensors_.dtype());
  // The next delta is scaled again.
  if (scale_ != 1) Scale(tensors_.dtype(), last(first), count, 1 / scale_);
  tensors_.ForEachPart(first, count, [&](void* part, int64_t done, int64_t elements) {
    const char* const part_values = values + done * element_bytes;
    updater_.Settle(hyper_, part_values, part, elements);
    updater_.AddResidual(last(first + done), part, elements);
  });
  std::memcpy(last(first), values, static_cast<size_t>(count * element_bytes));
}

}  // namespace multiverso
