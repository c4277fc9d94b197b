#include "shard/kernels.h"

#include <type_traits>

#include "base/compiler.h"
#include "shard/vector_versions.h"

namespace multiverso::kernels {
namespace {

// The type to calculate in. Signed overflow is undefined in C++, but unsigned integers wrap around.
template <class T, bool kInteger = std::is_integral_v<T>>
struct Wrapping {
  using Type = std::make_unsigned_t<T>;
};
template <class T>
struct Wrapping<T, false> {
  using Type = T;
};

template <class T>
inline MV_ALWAYS_INLINE T Plus(T a, T b) {
  using U = typename Wrapping<T>::Type;
  return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
}

template <class T>
inline MV_ALWAYS_INLINE T Minus(T a, T b) {
  using U = typename Wrapping<T>::Type;
  return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
}

}  // namespace

#define MV_DEFINE_ARITHMETIC(T)                                                     \
  MV_VECTOR_VERSIONS void Add(T* w, const T* d, int64_t n) {                        \
    MV_INDEPENDENT                                                                  \
    for (int64_t i = 0; i < n; ++i) w[i] = Plus(w[i], d[i]);                        \
  }                                                                                 \
  MV_VECTOR_VERSIONS void AddGet(T* w, const T* d, T* out, int64_t n) {             \
    MV_INDEPENDENT                                                                  \
    for (int64_t i = 0; i < n; ++i) {                                               \
      const T sum = Plus(w[i], d[i]);                                               \
      w[i] = sum;                                                                   \
      out[i] = sum;                                                                 \
    }                                                                               \
  }                                                                                 \
  MV_VECTOR_VERSIONS void Sum(T* out, const T* a, const T* b, int64_t n) {          \
    MV_INDEPENDENT                                                                  \
    for (int64_t i = 0; i < n; ++i) out[i] = Plus(a[i], b[i]);                      \
  }                                                                                 \
  MV_VECTOR_VERSIONS void AddSum(T* w, const T* a, const T* b, T* out, int64_t n) { \
    MV_INDEPENDENT                                                                  \
    for (int64_t i = 0; i < n; ++i) {                                               \
      const T sum = Plus(w[i], Plus(a[i], b[i]));                                   \
      w[i] = sum;                                                                   \
      out[i] = sum;                                                                 \
    }                                                                               \
  }                                                                                 \
  MV_VECTOR_VERSIONS void Difference(T* out, const T* a, const T* b, int64_t n) {   \
    MV_INDEPENDENT                                                                  \
    for (int64_t i = 0; i < n; ++i) out[i] = Minus(a[i], b[i]);                     \
  }                                                                                 \
  MV_VECTOR_VERSIONS void Exchange(T* w, T* current, T* last, int64_t n) {          \
    MV_INDEPENDENT                                                                  \
    for (int64_t i = 0; i < n; ++i) {                                               \
      const T sum = Plus(w[i], Minus(current[i], last[i]));                         \
      w[i] = sum;                                                                   \
      current[i] = sum;                                                             \
      last[i] = sum;                                                                \
    }                                                                               \
  }

#define MV_DEFINE_SETTLE(Name, Combine, T)                                       \
  MV_VECTOR_VERSIONS void Name(T* current, T* last, const T* table, int64_t n) { \
    MV_INDEPENDENT                                                               \
    for (int64_t i = 0; i < n; ++i) {                                            \
      const T value = table[i];                                                  \
      current[i] = Combine(value, last[i]);                                      \
      last[i] = value;                                                           \
    }                                                                            \
  }

#define MV_DEFINE_DESCEND(T)                                                                 \
  MV_VECTOR_VERSIONS void Descend(T* w, const T* d, T rate, int64_t n) {                     \
    MV_INDEPENDENT                                                                           \
    for (int64_t i = 0; i < n; ++i) w[i] -= rate * d[i];                                     \
  }                                                                                          \
  MV_VECTOR_VERSIONS void ExchangeDescending(T* w, T* current, T* last, T rate, int64_t n) { \
    MV_INDEPENDENT                                                                           \
    for (int64_t i = 0; i < n; ++i) {                                                        \
      const T result = w[i] - rate * (last[i] - current[i]);                                 \
      w[i] = result;                                                                         \
      current[i] = result;                                                                   \
      last[i] = result;                                                                      \
    }                                                                                        \
  }

MV_DEFINE_ARITHMETIC(float)
MV_DEFINE_ARITHMETIC(double)
MV_DEFINE_ARITHMETIC(int32_t)
MV_DEFINE_ARITHMETIC(int64_t)
MV_DEFINE_SETTLE(SettleAdding, Plus, float)
MV_DEFINE_SETTLE(SettleAdding, Plus, double)
MV_DEFINE_SETTLE(SettleAdding, Plus, int32_t)
MV_DEFINE_SETTLE(SettleAdding, Plus, int64_t)
MV_DEFINE_SETTLE(SettleSubtracting, Minus, float)
MV_DEFINE_SETTLE(SettleSubtracting, Minus, double)
MV_DEFINE_DESCEND(float)
MV_DEFINE_DESCEND(double)

#undef MV_DEFINE_ARITHMETIC
#undef MV_DEFINE_SETTLE
#undef MV_DEFINE_DESCEND

const char* VectorVersion() {
#if MV_HAS_VECTOR_VERSIONS
  if (__builtin_cpu_supports("avx512f")) return "avx512";
  if (__builtin_cpu_supports("avx2")) return "avx2";
#endif
  return "baseline";
}

}  // namespace multiverso::kernels
