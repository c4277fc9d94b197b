#include "shard/tensor_exchange.h"

#include <algorithm>
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

WireFormat TensorExchange::TakeEncoded(WireFormat format, int64_t first, int64_t count,
                                       char* to) const {
  const int64_t bytes = WireBytes(WireFormat::kFloat32, count);
  auto* const delta = reinterpret_cast<float*>(last(first));
  // A single int8 with its scale takes more bytes than a float.
  bool fits = WireBytes(format, count) < bytes;
  int64_t taken = 0;
  int64_t encoded = 0;
  while (fits && encoded < count) {
    const int64_t piece = std::min(kWirePiece, count - encoded);
    TakeDelta(first + encoded, piece);
    taken += piece;
    fits = EncodeTaking(format, delta + encoded, piece, to + WireBytes(format, encoded));
    if (fits) encoded = taken;
  }
  if (fits) return format;
  // The sums are exactly the deltas.
  AddDecoded(format, to, encoded, delta);
  TakeDelta(first + taken, count - taken);
  std::memcpy(to, delta, static_cast<size_t>(bytes));
  std::memset(delta, 0, static_cast<size_t>(bytes));
  return WireFormat::kFloat32;
}

void TensorExchange::SettleEncoded(WireFormat format, int64_t first, int64_t count,
                                   const char* values) const {
  float decoded[kWirePiece];
  for (int64_t done = 0; done < count; done += kWirePiece) {
    const int64_t piece = std::min(kWirePiece, count - done);
    DecodePart(format, values, done, piece, decoded);
    // The next delta is scaled again.
    if (scale_ != 1) Scale(tensors_.dtype(), last(first + done), piece, 1 / scale_);
    tensors_.ForEachPart(first + done, piece, [&](void* part, int64_t offset, int64_t elements) {
      updater_.SettleWithResidual(hyper_, decoded + offset, last(first + done + offset), part,
                                  elements);
    });
  }
}

}  // namespace multiverso
