#include "transport/wire_format.h"

#include <algorithm>
#include <cstring>

#include "base/compiler.h"
#include "base/mix.h"
#include "shard/half.h"
#include "shard/kernels.h"
#include "shard/vector_versions.h"

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

inline MV_ALWAYS_INLINE int32_t BitsOf(float value) {
  int32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline MV_ALWAYS_INLINE int8_t NearestInteger(float value) {
  return static_cast<int8_t>(BitsOf(value + kRounder));
}

MV_VECTOR_VERSIONS int32_t LargestMagnitude(const float* values, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, BitsOf(values[i]) & kMagnitude);
  return largest;
}

// bfloat16 is the upper half of float32. The loops return the largest magnitude.
MV_VECTOR_VERSIONS int32_t NearestHalves(const float* values, int64_t count, uint16_t* to) {
  int32_t largest = 0;
  MV_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const int32_t bits = BitsOf(values[i]);
    largest = std::max(largest, bits & kMagnitude);
    const auto magnitude = static_cast<uint32_t>(bits);
    to[i] = static_cast<uint16_t>((magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16);
  }
  return largest;
}

MV_VECTOR_VERSIONS int32_t RandomHalves(const float* values, uint64_t key, int64_t count,
                                        uint16_t* to) {
  const RandomBits random(key);
  const auto elements = static_cast<uint32_t>(count);
  int32_t largest = 0;
  MV_INDEPENDENT
  for (uint32_t i = 0; i < elements; ++i) {
    const int32_t bits = BitsOf(values[i]);
    largest = std::max(largest, bits & kMagnitude);
    to[i] = static_cast<uint16_t>((static_cast<uint32_t>(bits) + random.Of(i)) >> 16);
  }
  return largest;
}

// A division, whose result is the nearest to the true quotient, makes SubtractDecoded exact.
MV_VECTOR_VERSIONS void NearestCodes(const float* values, float scale, int64_t count, int8_t* to) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) to[i] = NearestInteger(values[i] / scale);
}

MV_VECTOR_VERSIONS void RandomCodes(const float* values, float scale, uint64_t key, int64_t count,
                                    int8_t* to) {
  const RandomBits random(key);
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

// Calls encode(codes, values, scale, first, count) for each block, until a block has no scale.
template <class Encode>
bool EncodeBlocks(const float* values, int64_t count, char* to, Encode encode) {
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t in_block = std::min(kBlock, count - first);
    const int32_t largest = LargestMagnitude(values + first, in_block);
    if (largest > kMost || (largest < kLeast && largest > 0)) return false;
    float scale = 0;
    std::memcpy(&scale, &largest, sizeof(scale));
    scale = largest > 0 ? scale / kMostCode : 1;
    std::memcpy(to, &scale, sizeof(scale));
    encode(values + first, scale, first, in_block, reinterpret_cast<int8_t*>(to + kScaleBytes));
    to += kScaleBytes + in_block;
  }
  return true;
}

// Calls use(first, values, count) for the decoded values of each block.
template <class Use>
void ForEachBlock(WireFormat format, const char* from, int64_t count, Use use) {
  float decoded[kBlock];
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t in_block = std::min(kBlock, count - first);
    Decode(format, from, in_block, decoded);
    use(first, decoded, in_block);
    from += WireBytes(format, in_block);
  }
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
  if (format == WireFormat::kBFloat16) {
    return NearestHalves(values, count, reinterpret_cast<uint16_t*>(to)) <= kMost;
  }
  return EncodeBlocks(values, count, to,
                      [](const float* block, float scale, int64_t /*first*/, int64_t in_block,
                         int8_t* codes) { NearestCodes(block, scale, in_block, codes); });
}

bool EncodeAtRandom(WireFormat format, const float* values, int64_t count, uint64_t seed,
                    char* to) {
  if (format == WireFormat::kBFloat16) {
    return RandomHalves(values, Mix64(seed), count, reinterpret_cast<uint16_t*>(to)) <= kMost;
  }
  return EncodeBlocks(
      values, count, to,
      [seed](const float* block, float scale, int64_t first, int64_t in_block, int8_t* codes) {
        const uint64_t key = Mix64(Mix64(static_cast<uint64_t>(first)) + seed);
        RandomCodes(block, scale, key, in_block, codes);
      });
}

void Decode(WireFormat format, const char* from, int64_t count, float* values) {
  if (format == WireFormat::kBFloat16) {
    return half::ToFloat(DType::kBFloat16, reinterpret_cast<const uint16_t*>(from), count, values);
  }
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t in_block = std::min(kBlock, count - first);
    float scale = 0;
    std::memcpy(&scale, from, sizeof(scale));
    DecodeCodes(reinterpret_cast<const int8_t*>(from + kScaleBytes), scale, in_block,
                values + first);
    from += kScaleBytes + in_block;
  }
}

void SubtractDecoded(WireFormat format, const char* from, int64_t count, float* values) {
  ForEachBlock(format, from, count, [&](int64_t first, const float* decoded, int64_t in_block) {
    kernels::Difference(values + first, values + first, decoded, in_block);
  });
}

void AddDecoded(WireFormat format, const char* from, int64_t count, float* values) {
  ForEachBlock(format, from, count, [&](int64_t first, const float* decoded, int64_t in_block) {
    kernels::Add(values + first, decoded, in_block);
  });
}

}  // namespace multiverso
