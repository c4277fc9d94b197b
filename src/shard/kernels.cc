#include "shard/kernels.h"

#include <type_traits>

// Several versions of a function, chosen when the library is loaded, where compiler and C library
// can do it (GNU indirect functions).
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define MV_VECTOR_VERSIONS __attribute__((target_clones("avx512f", "avx2", "default")))
#define MV_HAS_VECTOR_VERSIONS 1
#else
#define MV_VECTOR_VERSIONS
#define MV_HAS_VECTOR_VERSIONS 0
#endif

// Weights, delta and out overlap only element for element (out == delta), which is no obstacle to
// vectors, but the compiler cannot know that.
#if defined(__clang__)
#define MV_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define MV_INDEPENDENT _Pragma("GCC ivdep")
#else
#define MV_INDEPENDENT
#endif

namespace multiverso::kernels {
namespace {

// Signed overflow is undefined in C++; the same bits come out of unsigned arithmetic.
template <class T, bool kInteger = std::is_integral_v<T>>
struct Arithmetic {
  using Type = std::make_unsigned_t<T>;
};
template <class T>
struct Arithmetic<T, false> {
  using Type = T;
};

template <class T>
inline __attribute__((always_inline)) T Plus(T a, T b) {
  using U = typename Arithmetic<T>::Type;
  return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
}

}  // namespace

#define MV_DEFINE_ADD(T)                                                \
  MV_VECTOR_VERSIONS void Add(T* w, const T* d, int64_t n) {            \
    MV_INDEPENDENT                                                      \
    for (int64_t i = 0; i < n; ++i) w[i] = Plus(w[i], d[i]);            \
  }                                                                     \
  MV_VECTOR_VERSIONS void AddGet(T* w, const T* d, T* out, int64_t n) { \
    MV_INDEPENDENT                                                      \
    for (int64_t i = 0; i < n; ++i) {                                   \
      const T sum = Plus(w[i], d[i]);                                   \
      w[i] = sum;                                                       \
      out[i] = sum;                                                     \
    }                                                                   \
  }

#define MV_DEFINE_SUM(T)                                                   \
  MV_VECTOR_VERSIONS void Sum(T* out, const T* a, const T* b, int64_t n) { \
    MV_INDEPENDENT                                                         \
    for (int64_t i = 0; i < n; ++i) out[i] = Plus(a[i], b[i]);             \
  }

#define MV_DEFINE_DESCEND(T)                                                        \
  MV_VECTOR_VERSIONS void Descend(T* w, const T* d, T rate, int64_t n) {            \
    MV_INDEPENDENT                                                                  \
    for (int64_t i = 0; i < n; ++i) w[i] -= rate * d[i];                            \
  }                                                                                 \
  MV_VECTOR_VERSIONS void DescendGet(T* w, const T* d, T* out, T rate, int64_t n) { \
    MV_INDEPENDENT                                                                  \
    for (int64_t i = 0; i < n; ++i) {                                               \
      const T weight = w[i] - rate * d[i];                                          \
      w[i] = weight;                                                                \
      out[i] = weight;                                                              \
    }                                                                               \
  }

MV_DEFINE_ADD(float)
MV_DEFINE_ADD(double)
MV_DEFINE_ADD(int32_t)
MV_DEFINE_ADD(int64_t)
MV_DEFINE_SUM(float)
MV_DEFINE_SUM(double)
MV_DEFINE_SUM(int32_t)
MV_DEFINE_SUM(int64_t)
MV_DEFINE_DESCEND(float)
MV_DEFINE_DESCEND(double)

#undef MV_DEFINE_ADD
#undef MV_DEFINE_SUM
#undef MV_DEFINE_DESCEND

const char* VectorVersion() {
#if MV_HAS_VECTOR_VERSIONS
  if (__builtin_cpu_supports("avx512f")) return "avx512";
  if (__builtin_cpu_supports("avx2")) return "avx2";
#endif
  return "baseline";
}

}  // namespace multiverso::kernels
