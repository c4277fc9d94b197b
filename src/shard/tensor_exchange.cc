#include "shard/tensor_exchange.h"

#include <cstring>

namespace multiverso {

void TensorExchange::TakeDelta(int64_t first, int64_t count) const {
  tensors_.ForEachPart(first, count, [&](void* part, int64_t done, int64_t elements) {
    updater_.TakeDelta(part, last(first + done), elements);
  });
}

void TensorExchange::Settle(int64_t first, int64_t count) const {
  tensors_.ForEachPart(first, count, [&](void* part, int64_t done, int64_t elements) {
    updater_.Settle(hyper_, last(first + done), part, elements);
  });
}

void TensorExchange::SettleWithResidual(int64_t first, int64_t count, const char* values) const {
  const int64_t element_bytes = SizeOf(tensors_.dtype());
  tensors_.ForEachPart(first, count, [&](void* part, int64_t done, int64_t elements) {
    const char* const part_values = values + done * element_bytes;
    updater_.Settle(hyper_, part_values, part, elements);
    updater_.AddResidual(last(first + done), part, elements);
  });
  std::memcpy(last(first), values, static_cast<size_t>(count * element_bytes));
}

}  // namespace multiverso
