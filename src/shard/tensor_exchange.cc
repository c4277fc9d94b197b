#include "shard/tensor_exchange.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/copy_bytes.h"

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

void TensorExchange::TakeDelta(int64_t first, int64_t count, char* to) const {
  const int64_t value_bytes = SizeOf(tensors_.dtype());
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t piece = std::min(kPiece, count - begin);
    char* const delta = to + begin * value_bytes;
    tensors_.ForEachPart(first + begin, piece, [&](void* part, int64_t done, int64_t elements) {
      updater_.TakeDelta(part, last(first + begin + done), delta + done * value_bytes, elements);
    });
    if (scale_ != 1) Scale(tensors_.dtype(), delta, piece, scale_);
  }
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
  int64_t num_taken = 0;
  int64_t num_encoded = 0;
  while (fits && num_encoded < count) {
    const int64_t piece = std::min(kWirePiece, count - num_encoded);
    TakeDelta(first + num_encoded, piece, last(first + num_encoded));
    num_taken += piece;
    fits = EncodeTaking(format, delta + num_encoded, piece, to + WireBytes(format, num_encoded));
    if (fits) num_encoded = num_taken;
  }
  if (fits) return format;
  // Where values were encoded, `delta` holds what rounding took. The sum of this and of the encoded
  // values is exactly the delta.
  AddDecoded(format, to, num_encoded, delta);
  TakeDelta(first + num_taken, count - num_taken, last(first + num_taken));
  CopyBytes(to, delta, static_cast<size_t>(bytes));
  std::memset(delta, 0, static_cast<size_t>(bytes));
  return WireFormat::kFloat32;
}

void TensorExchange::SettleEncoded(WireFormat format, int64_t first, int64_t count,
                                   const char* values) const {
  float decoded[kWirePiece];
  for (int64_t done = 0; done < count; done += kWirePiece) {
    const int64_t piece = std::min(kWirePiece, count - done);
    DecodePart(format, values, done, piece, decoded);
    // What rounding took is kept without the factor, because the next TakeDelta multiplies it again
    // together with the next delta.
    if (scale_ != 1) Scale(tensors_.dtype(), last(first + done), piece, 1 / scale_);
    tensors_.ForEachPart(first + done, piece, [&](void* part, int64_t offset, int64_t elements) {
      updater_.SettleWithResidual(hyper_, decoded + offset, last(first + done + offset), part,
                                  elements);
    });
  }
}

}  // namespace multiverso
