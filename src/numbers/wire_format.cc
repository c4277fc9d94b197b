#include "numbers/wire_format.h"

#include <algorithm>
#include <cstring>

#include "base/compiler.h"
#include "base/mix.h"
#include "base/raw_bytes.h"
#include "numbers/half.h"
#include "numbers/kernels.h"
#include "numbers/vector_versions.h"

namespace multiverso {
namespace {

constexpr int64_t kBlock = 256;  // values with one scale
constexpr int64_t kScaleBytes = sizeof(float);
constexpr float kMostCode = 127;

// Magnitudes as the bits of float32, which are ordered as the magnitudes are. bfloat16 may round
// greater ones than kMost to infinity. A scale of less than kLeast / 127 would lose digits.
constexpr int32_t kMagnitude = 0x7fffffff;
constexpr int32_t kMost = 0x7f7f0000;
constexpr int32_t kLeast = (127 - 100) << 23;

// Its sum with a float of magnitude up to 2^22 has the nearest integer in its last bits.
constexpr float kRounder = 12582912;  // 1.5 * 2^23

inline MV_ALWAYS_INLINE int8_t NearestInteger(float value) {
  return static_cast<int8_t>(BitCast<int32_t>(value + kRounder));
}

MV_VECTOR_VERSIONS int32_t LargestMagnitude(const float* values, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, BitCast<int32_t>(values[i]) & kMagnitude);
  }
  return largest;
}

// bfloat16 is the upper half of float32. The loops return the largest magnitude.
MV_VECTOR_VERSIONS int32_t NearestHalves(const float* values, int64_t count, uint16_t* to) {
  int32_t largest = 0;
  MV_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const int32_t bits = BitCast<int32_t>(values[i]);
    largest = std::max(largest, bits & kMagnitude);
    const auto magnitude = static_cast<uint32_t>(bits);
    to[i] = static_cast<uint16_t>((magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16);
  }
  return largest;
}

MV_VECTOR_VERSIONS int32_t RandomHalves(const float* values, uint64_t key, int64_t count,
                                        uint16_t* to) {
  const RandomBits random = RandomBits::FromKey(key);
  const auto elements = static_cast<uint32_t>(count);
  int32_t largest = 0;
  MV_INDEPENDENT
  for (uint32_t i = 0; i < elements; ++i) {
    const int32_t bits = BitCast<int32_t>(values[i]);
    largest = std::max(largest, bits & kMagnitude);
    to[i] = static_cast<uint16_t>((static_cast<uint32_t>(bits) + random.Of(i)) >> 16);
  }
  return largest;
}

// Leaves what rounding took in `values`.
MV_VECTOR_VERSIONS void TakeHalves(float* values, int64_t count, uint16_t* to) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = BitCast<uint32_t>(values[i]);
    const uint32_t half = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    to[i] = static_cast<uint16_t>(half);
    values[i] -= BitCast<float>(half << 16);
  }
}

// Returns the codes that a unit has. The products with it are at most the true quotients, in
// magnitude. So a value with a code other than 0 is at least half of what the code stands for, and
// the difference of the two is exact.
inline MV_ALWAYS_INLINE float CodesPerUnit(float scale) { return 1 / scale * (1 - 0x1p-21F); }

MV_VECTOR_VERSIONS void NearestCodes(const float* values, float scale, int64_t count, int8_t* to) {
  const float per_unit = CodesPerUnit(scale);
  MV_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) to[i] = NearestInteger(values[i] * per_unit);
}

MV_VECTOR_VERSIONS void TakeCodes(float* values, float scale, int64_t count, int8_t* to) {
  const float per_unit = CodesPerUnit(scale);
  MV_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    // The sum less the number that rounded it is the nearest integer, as a float.
    const float rounded = values[i] * per_unit + kRounder;
    to[i] = static_cast<int8_t>(BitCast<int32_t>(rounded));
    values[i] -= (rounded - kRounder) * scale;
  }
}

MV_VECTOR_VERSIONS void RandomCodes(const float* values, float scale, uint64_t key, int64_t count,
                                    int8_t* to) {
  const RandomBits random = RandomBits::FromKey(key);
  const float per_unit = 1 / scale;
  const auto elements = static_cast<uint32_t>(count);
  MV_INDEPENDENT
  for (uint32_t i = 0; i < elements; ++i) {
    // From -0.5 to 0.5, in the middle of 2^16 equal intervals.
    const float shift =
        (static_cast<float>(static_cast<int32_t>(random.Of(i))) - 32767.5F) * 0x1p-16F;
    to[i] = NearestInteger(values[i] * per_unit + shift);
  }
}

MV_VECTOR_VERSIONS void DecodeCodes(const int8_t* codes, float scale, int64_t count, float* to) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(codes[i]) * scale;
}

// Calls encode(values, scale, first, count, codes) for each block, until a block has no scale.
// Returns the number of values before that.
template <class Value, class Encode>
int64_t EncodeBlocks(Value* values, int64_t count, char* to, Encode encode) {
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t in_block = std::min(kBlock, count - first);
    const int32_t largest = LargestMagnitude(values + first, in_block);
    if (largest > kMost || (largest < kLeast && largest > 0)) return first;
    const float scale = largest > 0 ? BitCast<float>(largest) / kMostCode : 1;
    std::memcpy(to, &scale, sizeof(scale));
    encode(values + first, scale, first, in_block, reinterpret_cast<int8_t*>(to + kScaleBytes));
    to += kScaleBytes + in_block;
  }
  return count;
}

}  // namespace

const char* NameOf(WireFormat format) {
  constexpr const char* kNames[] = {"float32", "bfloat16", "int8"};
  return kNames[static_cast<int32_t>(format)];
}

int64_t WireBytes(WireFormat format, int64_t count) {
  switch (format) {
    case WireFormat::kFloat32:
      break;
    case WireFormat::kBFloat16:
      return count * int64_t{sizeof(uint16_t)};
    case WireFormat::kInt8:
      return count + (count + kBlock - 1) / kBlock * kScaleBytes;
  }
  return count * int64_t{sizeof(float)};
}

bool EncodeNearest(WireFormat format, const float* values, int64_t count, char* to) {
  switch (format) {
    case WireFormat::kFloat32:
      break;
    case WireFormat::kBFloat16:
      return NearestHalves(values, count, reinterpret_cast<uint16_t*>(to)) <= kMost;
    case WireFormat::kInt8:
      return EncodeBlocks(values, count, to,
                          [](const float* block, float scale, int64_t /*first*/, int64_t in_block,
                             int8_t* codes) { NearestCodes(block, scale, in_block, codes); }) ==
             count;
  }
  std::copy_n(reinterpret_cast<const char*>(values), WireBytes(format, count), to);
  return true;
}

bool EncodeTaking(WireFormat format, float* values, int64_t count, char* to) {
  if (format == WireFormat::kBFloat16) {
    if (LargestMagnitude(values, count) > kMost) return false;
    TakeHalves(values, count, reinterpret_cast<uint16_t*>(to));
    return true;
  }
  const int64_t encoded =
      EncodeBlocks(values, count, to,
                   [](float* block, float scale, int64_t /*first*/, int64_t in_block,
                      int8_t* codes) { TakeCodes(block, scale, in_block, codes); });
  if (encoded < count) AddDecoded(format, to, encoded, values);
  return encoded == count;
}

bool EncodeAtRandom(WireFormat format, const float* values, int64_t count, uint64_t seed,
                    char* to) {
  if (format == WireFormat::kBFloat16) {
    return RandomHalves(values, Mix64(seed), count, reinterpret_cast<uint16_t*>(to)) <= kMost;
  }
  const auto encode = [seed](const float* block, float scale, int64_t first, int64_t in_block,
                             int8_t* codes) {
    const uint64_t key = Mix64(Mix64(static_cast<uint64_t>(first)) + seed);
    RandomCodes(block, scale, key, in_block, codes);
  };
  return EncodeBlocks(values, count, to, encode) == count;
}

void DecodePart(WireFormat format, const char* from, int64_t first, int64_t count, float* values) {
  switch (format) {
    case WireFormat::kFloat32:
      std::copy_n(from + WireBytes(format, first), WireBytes(format, count),
                  reinterpret_cast<char*>(values));
      return;
    case WireFormat::kBFloat16:
      return half::ToFloat(DType::kBFloat16, reinterpret_cast<const uint16_t*>(from) + first, count,
                           values);
    case WireFormat::kInt8:
      break;
  }
  const int64_t end = first + count;
  while (first < end) {
    const char* const block = from + first / kBlock * (kScaleBytes + kBlock);
    const int64_t in_block = std::min(end, (first / kBlock + 1) * kBlock) - first;
    float scale = 0;
    std::memcpy(&scale, block, sizeof(scale));
    const auto* const codes = reinterpret_cast<const int8_t*>(block + kScaleBytes);
    DecodeCodes(codes + first % kBlock, scale, in_block, values);
    values += in_block;
    first += in_block;
  }
}

void Decode(WireFormat format, const char* from, int64_t count, float* values) {
  DecodePart(format, from, 0, count, values);
}

void AddDecoded(WireFormat format, const char* from, int64_t count, float* values) {
  float decoded[kBlock];
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t in_block = std::min(kBlock, count - first);
    DecodePart(format, from, first, in_block, decoded);
    kernels::Add(values + first, decoded, in_block);
  }
}

}  // namespace multiverso
