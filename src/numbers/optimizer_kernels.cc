#include "numbers/optimizer_kernels.h"

#include <cmath>

#include "base/compiler.h"
#include "base/raw_bytes.h"
#include "numbers/change.h"
#include "numbers/vector_versions.h"

namespace multiverso::kernels {
namespace {

// Remember encodes a number by inverting the bits that are set in this NaN, and the same inversion
// decodes it. So zero-filled memory decodes to this NaN, which means that nothing was remembered.
template <class T>
struct NanOf;
template <>
struct NanOf<float> {
  using Bits = uint32_t;
  static constexpr Bits kBits = 0x7fc00000;
};
template <>
struct NanOf<double> {
  using Bits = uint64_t;
  static constexpr Bits kBits = 0x7ff8000000000000;
};

template <class T>
inline MV_ALWAYS_INLINE T FlipNanBits(T value) {
  return BitCast<T>(BitCast<typename NanOf<T>::Bits>(value) ^ NanOf<T>::kBits);
}

// Returns how far w has moved since Remember wrote `seen`.
template <class T>
inline MV_ALWAYS_INLINE T Gap(T w, T seen) {
  const T remembered = FlipNanBits(seen);
  return remembered == remembered ? w - remembered : T{0};
}

// The sum is of the type Sum, which may be more precise than that of the numbers.
template <class Sum, class T>
inline MV_ALWAYS_INLINE Sum SumSquares(const T* g, int64_t n) {
  constexpr int64_t kSums = 16;
  Sum sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) {
      sums[j] += static_cast<Sum>(g[i + j]) * static_cast<Sum>(g[i + j]);
    }
  }
  for (int64_t j = 0; i < n; ++i, ++j) sums[j] += static_cast<Sum>(g[i]) * static_cast<Sum>(g[i]);
  for (int64_t half = kSums / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

template <bool kIsSquareRoot, class T>
inline MV_ALWAYS_INLINE void RunFtrl(T* w, T* linear, T* sum, const T* g,
                                     const FtrlOptions<T>& options, int64_t n) {
  const auto [rate, power, initial, l1, l2, shrinkage] = options;
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T before = sum[i] == 0 ? initial : sum[i];
    const T after = before + g[i] * g[i];
    const T root_before = kIsSquareRoot ? std::sqrt(before) : std::pow(before, power);
    const T root_after = kIsSquareRoot ? std::sqrt(after) : std::pow(after, power);
    const T z = linear[i] + (g[i] + shrinkage * w[i] - (root_after - root_before) / rate * w[i]);
    const T clipped = z > l1 ? l1 : (z < -l1 ? -l1 : z);
    const T quadratic = root_after / rate + l2;
    const T quotient = (clipped - z) / quadratic;
    sum[i] = after;
    linear[i] = z;
    w[i] = quadratic == 0 ? T{0} : quotient;
  }
}

}  // namespace

namespace body {

template <class T>
inline MV_ALWAYS_INLINE void Momentum(T* w, T* velocity, const T* g, T rate, T momentum,
                                      int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T v = velocity[i] * momentum - g[i] * rate;
    velocity[i] = v;
    w[i] += v;
  }
}

template <class T>
inline MV_ALWAYS_INLINE void Nesterov(T* w, T* velocity, const T* g, T rate, T momentum,
                                      int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T descent = g[i] * rate;
    const T v = velocity[i] * momentum - descent;
    velocity[i] = v;
    w[i] += v * momentum - descent;
  }
}

template <class T>
inline MV_ALWAYS_INLINE void Adagrad(T* w, T* sum, const T* g, T rate, T initial, T epsilon,
                                     T outer, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T s = (sum[i] == 0 ? initial : sum[i]) + g[i] * g[i];
    sum[i] = s;
    w[i] -= rate * g[i] / (std::sqrt(s + epsilon) + outer);
  }
}

template <class T>
inline MV_ALWAYS_INLINE void Rmsprop(T* w, T* square, const T* g, T rate, T keep, T take, T epsilon,
                                     T outer, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T s = keep * square[i] + take * (g[i] * g[i]);
    square[i] = s;
    w[i] -= rate * g[i] / (std::sqrt(s + epsilon) + outer);
  }
}

template <class T>
inline MV_ALWAYS_INLINE void RmspropMomentum(T* w, T* square, T* velocity, const T* g, T rate,
                                             T keep, T take, T epsilon, T outer, T momentum,
                                             int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T s = keep * square[i] + take * (g[i] * g[i]);
    square[i] = s;
    const T v = momentum * velocity[i] + rate * g[i] / (std::sqrt(s + epsilon) + outer);
    velocity[i] = v;
    w[i] -= v;
  }
}

template <class T>
inline MV_ALWAYS_INLINE void Adadelta(T* w, T* square, T* steps, const T* g, T rate, T keep, T take,
                                      T epsilon, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T s = keep * square[i] + take * (g[i] * g[i]);
    square[i] = s;
    const T step = -(std::sqrt(steps[i] + epsilon) * g[i] / std::sqrt(s + epsilon));
    steps[i] = keep * steps[i] + take * (step * step);
    w[i] += rate * step;
  }
}

template <class T>
inline MV_ALWAYS_INLINE void Adam(T* w, T* mean, T* square, const T* g, T rate, T take_mean,
                                  T take_square, T epsilon, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T m = mean[i] + (g[i] - mean[i]) * take_mean;
    const T s = square[i] + (g[i] * g[i] - square[i]) * take_square;
    mean[i] = m;
    square[i] = s;
    w[i] -= m * rate / (std::sqrt(s) + epsilon);
  }
}

template <class T>
inline MV_ALWAYS_INLINE void Amsgrad(T* w, T* mean, T* square, T* largest, const T* g, T rate,
                                     T take_mean, T take_square, T epsilon, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T m = mean[i] + (g[i] - mean[i]) * take_mean;
    const T s = square[i] + (g[i] * g[i] - square[i]) * take_square;
    const T most = s <= largest[i] ? largest[i] : s;
    mean[i] = m;
    square[i] = s;
    largest[i] = most;
    w[i] -= m * rate / (std::sqrt(most) + epsilon);
  }
}

template <class T>
inline MV_ALWAYS_INLINE T MeanSquare(const T* g, int64_t n) {
  return SumSquares<T>(g, n) / static_cast<T>(n);
}

template <class T>
inline MV_ALWAYS_INLINE double SquareSum(const T* g, int64_t n) {
  return SumSquares<double>(g, n);
}

template <class T>
inline MV_ALWAYS_INLINE void RowwiseAdam(T* w, T* mean, const T* g, T take_mean, T scale,
                                         int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T m = mean[i] + (g[i] - mean[i]) * take_mean;
    mean[i] = m;
    w[i] -= m * scale;
  }
}

template <class T>
inline MV_ALWAYS_INLINE void Decay(T* w, T decay, T rate, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) w[i] -= w[i] * decay * rate;
}

template <class T>
inline MV_ALWAYS_INLINE void Clip(T* out, const T* g, T limit, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T value = g[i];
    out[i] = value > limit ? limit : (value < -limit ? -limit : value);
  }
}

template <class T>
inline MV_ALWAYS_INLINE void Scale(T* out, const T* g, T scale, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = g[i] * scale;
}

template <class T>
inline MV_ALWAYS_INLINE void Ftrl(T* w, T* linear, T* sum, const T* g,
                                  const FtrlOptions<T>& options, int64_t n) {
  if (options.power == T{0.5}) return RunFtrl<true>(w, linear, sum, g, options, n);
  RunFtrl<false>(w, linear, sum, g, options, n);
}

template <class T>
inline MV_ALWAYS_INLINE void Pull(T* w, const T* x, T force, T terms, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) w[i] += force * Change(x[i], terms * w[i]);
}

template <class T>
inline MV_ALWAYS_INLINE void Compensate(T* w, const T* seen, const T* g, T rate, T control,
                                        int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    w[i] -= rate * (g[i] + control * (g[i] * g[i]) * Gap(w[i], seen[i]));
  }
}

template <class T>
inline MV_ALWAYS_INLINE void Remember(T* seen, const T* w, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) seen[i] = FlipNanBits(w[i]);
}

template <class T>
inline MV_ALWAYS_INLINE void CompensateAdaptively(T* w, const T* seen, T* square, const T* g,
                                                  T rate, T control, T keep, T take, T epsilon,
                                                  int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T s = keep * square[i] + take * (g[i] * g[i]);
    const T adapted = control / std::sqrt(s + epsilon);
    square[i] = s;
    w[i] -= rate * (g[i] + adapted * (g[i] * g[i]) * Gap(w[i], seen[i]));
  }
}

}  // namespace body

// clang-format off: it would take the asterisks of pointers for products.
#define MV_INSTANTIATE_OPTIMIZERS(T) \
  MV_VERSIONS(void, Momentum, (T* w, T* velocity, const T* g, T rate, T momentum, int64_t n), \
              (w, velocity, g, rate, momentum, n)) \
  MV_VERSIONS(void, Nesterov, (T* w, T* velocity, const T* g, T rate, T momentum, int64_t n), \
              (w, velocity, g, rate, momentum, n)) \
  MV_VERSIONS(void, Adagrad, (T* w, T* sum, const T* g, T rate, T initial, T epsilon, T outer, \
               int64_t n), \
              (w, sum, g, rate, initial, epsilon, outer, n)) \
  MV_VERSIONS(void, Rmsprop, (T* w, T* square, const T* g, T rate, T keep, T take, T epsilon, \
               T outer, int64_t n), \
              (w, square, g, rate, keep, take, epsilon, outer, n)) \
  MV_VERSIONS(void, RmspropMomentum, (T* w, T* square, T* velocity, const T* g, T rate, T keep, \
               T take, T epsilon, T outer, T momentum, int64_t n), \
              (w, square, velocity, g, rate, keep, take, epsilon, outer, momentum, n)) \
  MV_VERSIONS(void, Adadelta, (T* w, T* square, T* steps, const T* g, T rate, T keep, T take, \
               T epsilon, int64_t n), \
              (w, square, steps, g, rate, keep, take, epsilon, n)) \
  MV_VERSIONS(void, Adam, (T* w, T* mean, T* square, const T* g, T rate, T take_mean, \
               T take_square, T epsilon, int64_t n), \
              (w, mean, square, g, rate, take_mean, take_square, epsilon, n)) \
  MV_VERSIONS(void, Amsgrad, (T* w, T* mean, T* square, T* largest, const T* g, T rate, \
               T take_mean, T take_square, T epsilon, int64_t n), \
              (w, mean, square, largest, g, rate, take_mean, take_square, epsilon, n)) \
  MV_VERSIONS(T, MeanSquare, (const T* g, int64_t n), (g, n)) \
  MV_VERSIONS(double, SquareSum, (const T* g, int64_t n), (g, n)) \
  MV_VERSIONS(void, RowwiseAdam, (T* w, T* mean, const T* g, T take_mean, T scale, int64_t n), \
              (w, mean, g, take_mean, scale, n)) \
  MV_VERSIONS(void, Decay, (T* w, T decay, T rate, int64_t n), (w, decay, rate, n)) \
  MV_VERSIONS(void, Clip, (T* out, const T* g, T limit, int64_t n), (out, g, limit, n)) \
  MV_VERSIONS(void, Scale, (T* out, const T* g, T scale, int64_t n), (out, g, scale, n)) \
  MV_VERSIONS(void, Ftrl, (T* w, T* linear, T* sum, const T* g, const FtrlOptions<T>& options, \
               int64_t n), \
              (w, linear, sum, g, options, n)) \
  MV_VERSIONS(void, Pull, (T* w, const T* x, T force, T terms, int64_t n), \
              (w, x, force, terms, n)) \
  MV_VERSIONS(void, Compensate, (T* w, const T* seen, const T* g, T rate, T control, int64_t n), \
              (w, seen, g, rate, control, n)) \
  MV_VERSIONS(void, Remember, (T* seen, const T* w, int64_t n), (seen, w, n)) \
  MV_VERSIONS(void, CompensateAdaptively, (T* w, const T* seen, T* square, const T* g, T rate, \
               T control, T keep, T take, T epsilon, int64_t n), \
              (w, seen, square, g, rate, control, keep, take, epsilon, n))
// clang-format on

MV_INSTANTIATE_OPTIMIZERS(float)
MV_INSTANTIATE_OPTIMIZERS(double)

#undef MV_INSTANTIATE_OPTIMIZERS

}  // namespace multiverso::kernels
