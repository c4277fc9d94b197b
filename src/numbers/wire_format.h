// WireFormat: how float32 values travel between nodes. bfloat16 halves their bytes, and int8 takes
// about a quarter: a block of 256 values is one float32 scale, the largest magnitude divided by
// 127, and a number from -127 to 127 for each value.
//
// There are two ways to round. The nearest value is for a sender that keeps what rounding took from
// a value and sends it later. Otherwise, such errors would not cancel out, so values are rounded up
// with a probability that makes the expected result the value itself.
#pragma once

#include <cstdint>

#include "multiverso/constants.h"

namespace multiverso {

// The numbers travel between nodes.
enum class WireFormat : int32_t {
  kFloat32 = MV_WIRE_FLOAT32,
  kBFloat16 = MV_WIRE_BFLOAT16,
  kInt8 = MV_WIRE_INT8
};

constexpr bool IsWireFormat(int32_t number) { return number >= 0 && number <= 2; }
// Returns "float32", "bfloat16" or "int8".
const char* NameOf(WireFormat format);

// Long runs of values are encoded and decoded in pieces that stay in the first-level cache. Pieces
// consist of whole blocks.
constexpr int64_t kWirePiece = 2048;

constexpr int64_t FloatsIn(int64_t bytes) { return bytes / static_cast<int64_t>(sizeof(float)); }
// Returns the bytes of `count` values in that format. A multiple of 256 values takes the same bytes
// alone as at the beginning of more values.
int64_t WireBytes(WireFormat format, int64_t count);

// The functions that encode return false, with undefined content of `to`, if the format cannot
// represent the values: then they travel as they are. These are infinity, NaN and neighbours of
// infinity and, for int8, blocks whose largest magnitude is less than 2^-100.

// Encodes each value as the nearest one of the format.
bool EncodeNearest(WireFormat format, const float* values, int64_t count, char* to);
// Encodes each value as the nearest one of a format other than kFloat32, and leaves in `values`
// exactly what rounding took from each value. `values` does not change if the result is false.
bool EncodeTaking(WireFormat format, float* values, int64_t count, char* to);
// Encodes values in a format other than kFloat32 and rounds them at random. Calls with the same
// `seed` and values have the same result.
bool EncodeAtRandom(WireFormat format, const float* values, int64_t count, uint64_t seed, char* to);
// Decode values: the first `count`, or `count` from `first` on. The memory does not overlap.
void Decode(WireFormat format, const char* from, int64_t count, float* values);
void DecodePart(WireFormat format, const char* from, int64_t first, int64_t count, float* values);
// Adds the decoded values to `values`.
void AddDecoded(WireFormat format, const char* from, int64_t count, float* values);

}  // namespace multiverso
