#include "numbers/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/raw_bytes.h"
#include "base/supported.h"
#include "base/text.h"
#include "numbers/half.h"

namespace multiverso {
namespace {

// The distribution function of the normal distribution at -2 and 2, between which kTruncatedNormal
// draws.
constexpr double kBelowMinusTwo = 0.022750131948179195;
constexpr double kBelowTwo = 0.97724986805182079;

// A float32 value uses one word, a float64 value two.
template <class T>
constexpr int kWordsPerValue = sizeof(T) / sizeof(uint32_t);

// Returns a multiple of 2^-24 or 2^-53, 0 included and 1 not.
template <class T>
double UniformOf(const uint32_t* words) {
  if constexpr (kWordsPerValue<T> == 1) return static_cast<double>(words[0] >> 8) * 0x1p-24;
  const uint64_t bits = (uint64_t{words[1]} << 32) | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Returns a probability between 0 and 1, both excluded, whose rounding is exact.
template <class T>
double ProbabilityOf(const uint32_t* words) {
  if constexpr (kWordsPerValue<T> == 1) return (static_cast<double>(words[0]) + 0.5) * 0x1p-32;
  const uint64_t bits = (uint64_t{words[1]} << 32) | words[0];
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

template <size_t kCount>
double Polynomial(const double (&coefficients)[kCount], double x) {
  double value = coefficients[0];
  for (size_t i = 1; i < kCount; ++i) value = value * x + coefficients[i];
  return value;
}

// Returns the natural logarithm of a positive normal number, within about 1e-16 of its size.
double Logarithm(double x) {
  constexpr double kLogOfTwo = 0.69314718055994531;
  constexpr double kRootOfHalf = 0.70710678118654752;
  constexpr int64_t kMantissaBits = 52;
  constexpr int64_t kHalfExponent = 1022;  // of 0.5 to 1
  auto bits = BitCast<int64_t>(x);
  int64_t exponent = (bits >> kMantissaBits) - kHalfExponent;
  bits = (bits & ((int64_t{1} << kMantissaBits) - 1)) | (kHalfExponent << kMantissaBits);
  auto mantissa = BitCast<double>(bits);
  if (mantissa < kRootOfHalf) {
    mantissa = mantissa * 2;
    --exponent;
  }
  // log m = 2 (s + s^3 / 3 + s^5 / 5 + ...) with s = (m - 1) / (m + 1)
  constexpr double kSeries[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
  const double s = (mantissa - 1) / (mantissa + 1);
  return static_cast<double>(exponent) * kLogOfTwo + 2 * s * Polynomial(kSeries, s * s);
}

template <class T>
bool Holds(double value) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::isfinite(value) && std::fabs(value) <= std::numeric_limits<T>::max();
  }
  // The limits of an integer type, as numbers that float64 holds exactly.
  const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
  return value >= -end && value < end && value == std::trunc(value);
}

// Returns whether an integer type can hold the sum of two numbers that it holds.
template <class T>
bool HoldsSum(double first, double second) {
  const auto a = static_cast<int64_t>(static_cast<T>(first));
  const auto b = static_cast<int64_t>(static_cast<T>(second));
  constexpr int64_t kLeast = std::numeric_limits<T>::min();
  constexpr int64_t kMost = std::numeric_limits<T>::max();
  return b < 0 ? a >= kLeast - b : a <= kMost - b;
}

// Returns whether a number that float32 can hold is finite in a type of 16 bits.
bool IsFiniteAs(DType dtype, double number) {
  if (!IsHalf(dtype)) return true;
  auto value = static_cast<float>(number);
  uint16_t stored = 0;
  half::RoundToNearest(dtype, &value, 1, &stored);
  half::ToFloat(dtype, &stored, 1, &value);
  return std::isfinite(value);
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultipliers[] = {0xD2511F53, 0xCD9E8D57};
  constexpr uint32_t kWeyl[] = {0x9E3779B9, 0xBB67AE85};
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t a = kMultipliers[0] * counter[0];
    const uint64_t b = kMultipliers[1] * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += kWeyl[0];
    key[1] += kWeyl[1];
  }
  return counter;
}

double InverseNormal(double p) {
  constexpr double kCenterAbove[] = {2.5090809287301226727e+3, 3.3430575583588128105e+4,
                                     6.7265770927008700853e+4, 4.5921953931549871457e+4,
                                     1.3731693765509461125e+4, 1.9715909503065514427e+3,
                                     1.3314166789178437745e+2, 3.3871328727963666080e+0};
  constexpr double kCenterBelow[] = {5.2264952788528545610e+3, 2.8729085735721942674e+4,
                                     3.9307895800092710610e+4, 2.1213794301586595867e+4,
                                     5.3941960214247511077e+3, 6.8718700749205790830e+2,
                                     4.2313330701600911252e+1, 1.0};
  constexpr double kTailAbove[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2,
                                   2.41780725177450611770e-1, 1.27045825245236838258e+0,
                                   3.64784832476320460504e+0, 5.76949722146069140550e+0,
                                   4.63033784615654529590e+0, 1.42343711074968357734e+0};
  constexpr double kTailBelow[] = {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                   1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                   6.89767334985100004550e-1, 1.67638483018380384940e+0,
                                   2.05319162663775882187e+0, 1.0};
  constexpr double kFarTailAbove[] = {2.01033439929228813265e-7, 2.71155556874348757815e-5,
                                      1.24266094738807843860e-3, 2.65321895265761230930e-2,
                                      2.96560571828504891230e-1, 1.78482653991729133580e+0,
                                      5.46378491116411436990e+0, 6.65790464350110377720e+0};
  constexpr double kFarTailBelow[] = {2.04426310338993978564e-15, 1.42151175831644588870e-7,
                                      1.84631831751005468180e-5,  7.86869131145613259100e-4,
                                      1.48753612908506148525e-2,  1.36929880922735805310e-1,
                                      5.99832206555887937690e-1,  1.0};
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kCenterAbove, r) / Polynomial(kCenterBelow, r);
  }
  double r = std::sqrt(-Logarithm(q < 0 ? p : 1 - p));
  double x = 0;
  if (r <= 5) {
    r = r - 1.6;
    x = Polynomial(kTailAbove, r) / Polynomial(kTailBelow, r);
  } else {
    r = r - 5;
    x = Polynomial(kFarTailAbove, r) / Polynomial(kFarTailBelow, r);
  }
  return q < 0 ? -x : x;
}

Status InitializerSpec::Check(DType dtype) const {
  if (kind < 0 || kind > static_cast<int32_t>(InitializerKind::kTruncatedNormal)) {
    return Status(Code::kValue, StrCat("initializer: expected 0 to 5, received ", kind));
  }
  MV_RETURN_IF_NOT_OK(CheckSupported(FeatureSet()
                                         .With(Feature::kRandom, is_random())
                                         .With(Feature::kInteger, !IsFloating(dtype))));
  const bool holds = WithType(dtype, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    if (!Holds<T>(first) || !Holds<T>(second)) return false;
    if constexpr (std::is_integral_v<T>) return HoldsSum<T>(first, second);
    return std::isfinite(second - first) && IsFiniteAs(dtype, first) && IsFiniteAs(dtype, second);
  });
  if (!holds) {
    return Status(Code::kValue, StrCat("init_value: expected numbers that ", NameOf(dtype),
                                       " can hold, received ", Describe()));
  }
  if (kind == static_cast<int32_t>(InitializerKind::kUniform) && first > second) {
    return Status(Code::kValue,
                  StrCat("init_value: expected minval <= maxval, received ", Describe()));
  }
  if (kind > static_cast<int32_t>(InitializerKind::kUniform) && second < 0) {
    return Status(Code::kValue,
                  StrCat("init_value: expected stddev of at least 0, received ", Describe()));
  }
  return Status::Ok();
}

std::string InitializerSpec::Describe() const {
  switch (static_cast<InitializerKind>(kind)) {
    case InitializerKind::kNone:
      return "";
    case InitializerKind::kZeros:
      return "Zeros()";
    case InitializerKind::kConstant:
      if (Holds<int64_t>(first) && Holds<int64_t>(second) && HoldsSum<int64_t>(first, second)) {
        return StrCat("Constant(", static_cast<int64_t>(first) + static_cast<int64_t>(second), ")");
      }
      return StrCat("Constant(", first, ")");
    default:
      break;
  }
  const char* const name = kind == static_cast<int32_t>(InitializerKind::kUniform) ? "RandomUniform"
                           : kind == static_cast<int32_t>(InitializerKind::kNormal)
                               ? "RandomNormal"
                               : "TruncatedNormal";
  return StrCat(name, "(", first, ", ", second, ", seed=", seed, ")");
}

template <class T>
void Initializer::FillRandom(int64_t row, int64_t column, int64_t count, T* out) const {
  constexpr int kWords = kWordsPerValue<T>;
  constexpr int64_t kPerBlock = 4 / kWords;
  const auto low = [](int64_t number) { return static_cast<uint32_t>(number); };
  const auto high = [](int64_t number) {
    return static_cast<uint32_t>(static_cast<uint64_t>(number) >> 32);
  };
  const std::array<uint32_t, 2> key{static_cast<uint32_t>(spec_.seed),
                                    static_cast<uint32_t>(spec_.seed >> 32)};
  const auto kind = static_cast<InitializerKind>(spec_.kind);
  const double range = spec_.second - spec_.first;
  const auto value_of = [&](const uint32_t* words) {
    if (kind == InitializerKind::kUniform) return spec_.first + UniformOf<T>(words) * range;
    double p = ProbabilityOf<T>(words);
    if (kind == InitializerKind::kTruncatedNormal) {
      p = kBelowMinusTwo + p * (kBelowTwo - kBelowMinusTwo);
    }
    return spec_.first + spec_.second * InverseNormal(p);
  };
  const int64_t end = column + count;
  while (column < end) {
    const int64_t block = column / kPerBlock;
    const auto words = Philox4x32({low(block), low(row), high(row), high(block)}, key);
    const int64_t block_end = std::min(end, (block + 1) * kPerBlock);
    for (; column < block_end; ++column) {
      *out++ = static_cast<T>(value_of(words.data() + column % kPerBlock * kWords));
    }
  }
}

void Initializer::Fill(int64_t row, int64_t column, int64_t count, void* out) const {
  if (IsHalf(dtype_)) {
    constexpr int64_t kAtOnce = 256;
    float values[kAtOnce];
    for (int64_t done = 0; done < count; done += kAtOnce) {
      const int64_t part = std::min(count - done, kAtOnce);
      Initializer(spec_, DType::kFloat32).Fill(row, column + done, part, values);
      half::RoundToNearest(dtype_, values, part, static_cast<uint16_t*>(out) + done);
    }
    return;
  }
  if (!spec_.is_random() && spec_.first == 0 && spec_.second == 0) {
    std::memset(out, 0, static_cast<size_t>(count * SizeOf(dtype_)));
    return;
  }
  WithType(dtype_, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    if constexpr (std::is_floating_point_v<T>) {
      if (spec_.is_random()) return FillRandom(row, column, count, static_cast<T*>(out));
    }
    auto value = static_cast<T>(spec_.first);
    if constexpr (std::is_integral_v<T>) value += static_cast<T>(spec_.second);
    std::fill_n(static_cast<T*>(out), count, value);
  });
}

}  // namespace multiverso
