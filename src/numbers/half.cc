#include "numbers/half.h"

#include <algorithm>

#include "base/compiler.h"
#include "base/mix.h"
#include "base/raw_bytes.h"
#include "numbers/half_avx512.h"
#include "numbers/vector_versions.h"

namespace multiverso::half {
namespace {

constexpr uint32_t kSign = 0x80000000U;
constexpr uint32_t kInfinity = 0x7f800000U;  // as float32; greater magnitudes are NaN
constexpr uint32_t kQuietNaN = 0x00400000U;

// Returns `then` if the condition holds. Compilers make a branch of a conditional expression whose
// operands are results of floating-point operations, and do not vectorize loops with branches.
inline MV_ALWAYS_INLINE uint32_t Select(bool condition, uint32_t then, uint32_t otherwise) {
  const uint32_t mask = 0U - static_cast<uint32_t>(condition);
  return (then & mask) | (otherwise & ~mask);
}

struct BFloat16 {
  static inline MV_ALWAYS_INLINE float ToFloat(uint32_t half) { return BitCast<float>(half << 16); }

  // Adds `added`, of 16 bits, and cuts off as many.
  static inline MV_ALWAYS_INLINE uint16_t Cut(float value, uint32_t added) {
    const uint32_t bits = BitCast<uint32_t>(value);
    const uint32_t magnitude = bits & ~kSign;
    const uint32_t rounded = Select(magnitude < kInfinity, bits + added, bits);
    return static_cast<uint16_t>(Select(magnitude > kInfinity, bits | kQuietNaN, rounded) >> 16);
  }

  static inline MV_ALWAYS_INLINE uint16_t Nearest(float value) {
    return Cut(value, 0x7fff + ((BitCast<uint32_t>(value) >> 16) & 1));
  }
  static inline MV_ALWAYS_INLINE uint16_t Stochastic(float value, uint32_t random) {
    return Cut(value, random);
  }
};

struct Float16 {
  static constexpr int kDropped = 13;                   // mantissa bits that float32 has more
  static constexpr uint32_t kExponents = 112U << 23;    // the difference of the exponents' biases
  static constexpr uint32_t kLeastNormal = 113U << 23;  // 2^-14
  static constexpr uint32_t kTooLarge = 143U << 23;     // 2^16

  static inline MV_ALWAYS_INLINE float ToFloat(uint32_t half) {
    const uint32_t magnitude = (half & 0x7fff) << kDropped;
    // The product is exact, and right for numbers below the normal range, too.
    const uint32_t finite = BitCast<uint32_t>(BitCast<float>(magnitude) * 0x1p112F);
    const uint32_t bits = Select((half & 0x7c00) == 0x7c00, magnitude | kInfinity, finite);
    return BitCast<float>(bits | (half & 0x8000) << 16);
  }

  // Assembles a number from float32 bits whose exponent and mantissa float16 can represent, from
  // the number in units of 2^-24 if it is below the normal range, or for infinity and NaN.
  static inline MV_ALWAYS_INLINE uint16_t Assemble(uint32_t bits, uint32_t rounded,
                                                   uint32_t subnormal) {
    const uint32_t magnitude = bits & ~kSign;
    const uint32_t finite =
        Select(magnitude < kLeastNormal, subnormal, (rounded - kExponents) >> kDropped);
    const uint32_t nan = 0x7e00 | ((magnitude >> kDropped) & 0x3ff);
    const uint32_t special = Select(magnitude > kInfinity, nan, 0x7c00);
    return static_cast<uint16_t>((bits & kSign) >> 16 |
                                 Select(magnitude < kTooLarge, finite, special));
  }

  static inline MV_ALWAYS_INLINE uint16_t Nearest(float value) {
    const uint32_t bits = BitCast<uint32_t>(value);
    const uint32_t magnitude = bits & ~kSign;
    // The sum with 0.5, whose last bit is 2^-24, rounds a small number as the processor does.
    const uint32_t subnormal =
        BitCast<uint32_t>(BitCast<float>(magnitude) + 0.5F) - BitCast<uint32_t>(0.5F);
    return Assemble(bits, magnitude + 0xfff + ((magnitude >> kDropped) & 1), subnormal);
  }

  static inline MV_ALWAYS_INLINE uint16_t Stochastic(float value, uint32_t random) {
    const uint32_t bits = BitCast<uint32_t>(value);
    const uint32_t magnitude = bits & ~kSign;
    const float small = BitCast<float>(Select(magnitude < kLeastNormal, magnitude, 0));
    const auto subnormal = static_cast<uint32_t>(static_cast<int32_t>(
        small * 0x1p24F + static_cast<float>(static_cast<int32_t>(random)) * 0x1p-16F));
    return Assemble(bits, magnitude + (random >> 3), subnormal);
  }
};

template <class Half>
inline MV_ALWAYS_INLINE void ToFloatLoop(const uint16_t* from, int64_t count, float* to) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) to[i] = Half::ToFloat(from[i]);
}

template <class Half>
inline MV_ALWAYS_INLINE void NearestLoop(const float* from, int64_t count, uint16_t* to) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) to[i] = Half::Nearest(from[i]);
}

template <class Half>
inline MV_ALWAYS_INLINE void StochasticLoop(const float* from, int64_t count, uint32_t first,
                                            uint64_t key, uint16_t* to) {
  const RandomBits random = RandomBits::FromKey(key);
  const auto elements = static_cast<uint32_t>(count);
  MV_INDEPENDENT
  for (uint32_t i = 0; i < elements; ++i) {
    to[i] = Half::Stochastic(from[i], random.Of(first + i));
  }
}

// Functions with several versions must not be templates.
MV_VECTOR_VERSIONS void BFloat16ToFloat(const uint16_t* from, int64_t count, float* to) {
  ToFloatLoop<BFloat16>(from, count, to);
}
MV_VECTOR_VERSIONS void Float16ToFloatLoop(const uint16_t* from, int64_t count, float* to) {
  ToFloatLoop<Float16>(from, count, to);
}
MV_VECTOR_VERSIONS void BFloat16Nearest(const float* from, int64_t count, uint16_t* to) {
  NearestLoop<BFloat16>(from, count, to);
}
MV_VECTOR_VERSIONS void Float16NearestLoop(const float* from, int64_t count, uint16_t* to) {
  NearestLoop<Float16>(from, count, to);
}
MV_VECTOR_VERSIONS void BFloat16Stochastic(const float* from, int64_t count, uint32_t first,
                                           uint64_t key, uint16_t* to) {
  StochasticLoop<BFloat16>(from, count, first, key, to);
}
MV_VECTOR_VERSIONS void Float16StochasticLoop(const float* from, int64_t count, uint32_t first,
                                              uint64_t key, uint16_t* to) {
  StochasticLoop<Float16>(from, count, first, key, to);
}

// Converts elements by loop(first, count). Where the processor has instructions for it,
// vectors(first, count) converts most of them, and a loop of one vector each what these leave.
template <class Vectors, class Loop>
void Convert(int64_t count, const Vectors& vectors, const Loop& loop) {
  if (!avx512::IsAvailable()) return loop(int64_t{0}, count);
  for (int64_t done = 0; done < count;) {
    done += vectors(done, count - done);
    const int64_t left = std::min(count - done, avx512::kLanes);
    if (left > 0) loop(done, left);
    done += left;
  }
}

void Float16ToFloat(const uint16_t* from, int64_t count, float* to) {
  Convert(
      count, [&](int64_t i, int64_t n) { return avx512::ToFloat(from + i, n, to + i); },
      [&](int64_t i, int64_t n) { Float16ToFloatLoop(from + i, n, to + i); });
}
void Float16Nearest(const float* from, int64_t count, uint16_t* to) {
  Convert(
      count, [&](int64_t i, int64_t n) { return avx512::RoundToNearest(from + i, n, to + i); },
      [&](int64_t i, int64_t n) { Float16NearestLoop(from + i, n, to + i); });
}
void Float16Stochastic(const float* from, int64_t count, uint32_t first, uint64_t key,
                       uint16_t* to) {
  const RandomBits random = RandomBits::FromKey(key);
  const auto at = [first](int64_t i) { return first + static_cast<uint32_t>(i); };
  Convert(
      count,
      [&](int64_t i, int64_t n) {
        return avx512::RoundStochastically(from + i, n, at(i), random, to + i);
      },
      [&](int64_t i, int64_t n) { Float16StochasticLoop(from + i, n, at(i), key, to + i); });
}

}  // namespace

void ToFloat(DType dtype, const uint16_t* from, int64_t count, float* to) {
  const auto convert = dtype == DType::kBFloat16 ? BFloat16ToFloat : Float16ToFloat;
  convert(from, count, to);
}

void RoundToNearest(DType dtype, const float* from, int64_t count, uint16_t* to) {
  const auto round = dtype == DType::kBFloat16 ? BFloat16Nearest : Float16Nearest;
  round(from, count, to);
}

void RoundStochastically(DType dtype, const float* from, int64_t count, int64_t first, int64_t step,
                         uint16_t* to) {
  const auto round = dtype == DType::kBFloat16 ? BFloat16Stochastic : Float16Stochastic;
  // The elements of a key may be the last that an int64 can count, so their end may be no int64.
  auto number = static_cast<uint64_t>(first);
  while (count > 0) {
    const uint64_t in_block = number % kRoundingBlock;
    const int64_t elements = std::min(count, kRoundingBlock - static_cast<int64_t>(in_block));
    const uint64_t key = Mix64(Mix64(number / kRoundingBlock) + static_cast<uint64_t>(step));
    round(from, elements, static_cast<uint32_t>(in_block), key, to);
    from += elements;
    to += elements;
    number += static_cast<uint64_t>(elements);
    count -= elements;
  }
}

}  // namespace multiverso::half
