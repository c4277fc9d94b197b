#include "shard/optimizer_kernels.h"

#include <cmath>
#include <cstring>

#include "base/compiler.h"
#include "shard/vector_versions.h"

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
  typename NanOf<T>::Bits bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits ^= NanOf<T>::kBits;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

}  // namespace

#define MV_DEFINE_MOMENTUM(T)                                                                      \
  MV_VECTOR_VERSIONS void Momentum(T* w, T* velocity, const T* g, T rate, T momentum, int64_t n) { \
    MV_INDEPENDENT                                                                                 \
    for (int64_t i = 0; i < n; ++i) {                                                              \
      const T v = velocity[i] * momentum - g[i] * rate;                                            \
      velocity[i] = v;                                                                             \
      w[i] += v;                                                                                   \
    }                                                                                              \
  }                                                                                                \
  MV_VECTOR_VERSIONS void Nesterov(T* w, T* velocity, const T* g, T rate, T momentum, int64_t n) { \
    MV_INDEPENDENT                                                                                 \
    for (int64_t i = 0; i < n; ++i) {                                                              \
      const T descent = g[i] * rate;                                                               \
      const T v = velocity[i] * momentum - descent;                                                \
      velocity[i] = v;                                                                             \
      w[i] += v * momentum - descent;                                                              \
    }                                                                                              \
  }

#define MV_DEFINE_ADAGRAD(T)                                                              \
  MV_VECTOR_VERSIONS void Adagrad(T* w, T* sum, const T* g, T rate, T initial, T epsilon, \
                                  int64_t n) {                                            \
    MV_INDEPENDENT                                                                        \
    for (int64_t i = 0; i < n; ++i) {                                                     \
      const T s = (sum[i] == 0 ? initial : sum[i]) + g[i] * g[i];                         \
      sum[i] = s;                                                                         \
      w[i] -= rate * g[i] / std::sqrt(s + epsilon);                                       \
    }                                                                                     \
  }

#define MV_DEFINE_RMSPROP(T)                                                                      \
  MV_VECTOR_VERSIONS void Rmsprop(T* w, T* square, const T* g, T rate, T keep, T take, T epsilon, \
                                  int64_t n) {                                                    \
    MV_INDEPENDENT                                                                                \
    for (int64_t i = 0; i < n; ++i) {                                                             \
      const T s = keep * square[i] + take * (g[i] * g[i]);                                        \
      square[i] = s;                                                                              \
      w[i] -= rate * g[i] / std::sqrt(s + epsilon);                                               \
    }                                                                                             \
  }                                                                                               \
  MV_VECTOR_VERSIONS void RmspropMomentum(T* w, T* square, T* velocity, const T* g, T rate,       \
                                          T keep, T take, T epsilon, T momentum, int64_t n) {     \
    MV_INDEPENDENT                                                                                \
    for (int64_t i = 0; i < n; ++i) {                                                             \
      const T s = keep * square[i] + take * (g[i] * g[i]);                                        \
      square[i] = s;                                                                              \
      const T v = momentum * velocity[i] + rate * g[i] / std::sqrt(s + epsilon);                  \
      velocity[i] = v;                                                                            \
      w[i] -= v;                                                                                  \
    }                                                                                             \
  }

#define MV_DEFINE_ADADELTA(T)                                                                     \
  MV_VECTOR_VERSIONS void Adadelta(T* w, T* square, T* steps, const T* g, T rate, T keep, T take, \
                                   T epsilon, int64_t n) {                                        \
    MV_INDEPENDENT                                                                                \
    for (int64_t i = 0; i < n; ++i) {                                                             \
      const T s = keep * square[i] + take * (g[i] * g[i]);                                        \
      square[i] = s;                                                                              \
      const T step = -(std::sqrt(steps[i] + epsilon) * g[i] / std::sqrt(s + epsilon));            \
      steps[i] = keep * steps[i] + take * (step * step);                                          \
      w[i] += rate * step;                                                                        \
    }                                                                                             \
  }

#define MV_DEFINE_ADAM(T)                                                                 \
  MV_VECTOR_VERSIONS void Adam(T* w, T* mean, T* square, const T* g, T rate, T take_mean, \
                               T take_square, T epsilon, int64_t n) {                     \
    MV_INDEPENDENT                                                                        \
    for (int64_t i = 0; i < n; ++i) {                                                     \
      const T m = mean[i] + (g[i] - mean[i]) * take_mean;                                 \
      const T s = square[i] + (g[i] * g[i] - square[i]) * take_square;                    \
      mean[i] = m;                                                                        \
      square[i] = s;                                                                      \
      w[i] -= m * rate / (std::sqrt(s) + epsilon);                                        \
    }                                                                                     \
  }

#define MV_DEFINE_PULL(T)                                                       \
  MV_VECTOR_VERSIONS void Pull(T* w, const T* x, T force, T terms, int64_t n) { \
    MV_INDEPENDENT                                                              \
    for (int64_t i = 0; i < n; ++i) w[i] += force * (x[i] - terms * w[i]);      \
  }

#define MV_DEFINE_COMPENSATE(T)                                                          \
  MV_VECTOR_VERSIONS void Compensate(T* w, const T* seen, const T* g, T rate, T control, \
                                     int64_t n) {                                        \
    MV_INDEPENDENT                                                                       \
    for (int64_t i = 0; i < n; ++i) {                                                    \
      const T remembered = FlipNanBits(seen[i]);                                         \
      const T gap = remembered == remembered ? w[i] - remembered : T{0};                 \
      w[i] -= rate * (g[i] + control * (g[i] * g[i]) * gap);                             \
    }                                                                                    \
  }                                                                                      \
  MV_VECTOR_VERSIONS void Remember(T* seen, const T* w, int64_t n) {                     \
    MV_INDEPENDENT                                                                       \
    for (int64_t i = 0; i < n; ++i) seen[i] = FlipNanBits(w[i]);                         \
  }

#define MV_DEFINE_OPTIMIZERS(T) \
  MV_DEFINE_MOMENTUM(T)         \
  MV_DEFINE_ADAGRAD(T)          \
  MV_DEFINE_RMSPROP(T)          \
  MV_DEFINE_ADADELTA(T)         \
  MV_DEFINE_ADAM(T)             \
  MV_DEFINE_PULL(T)             \
  MV_DEFINE_COMPENSATE(T)

MV_DEFINE_OPTIMIZERS(float)
MV_DEFINE_OPTIMIZERS(double)

}  // namespace multiverso::kernels
