#include "numbers/kernels.h"

#include <type_traits>

#include "base/compiler.h"
#include "numbers/change.h"
#include "numbers/vector_versions.h"

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

namespace body {

template <class T>
inline MV_ALWAYS_INLINE void Add(T* w, const T* d, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) w[i] = Plus(w[i], d[i]);
}

template <class T>
inline MV_ALWAYS_INLINE void AddGet(T* w, const T* d, T* out, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T sum = Plus(w[i], d[i]);
    w[i] = sum;
    out[i] = sum;
  }
}

template <class T>
inline MV_ALWAYS_INLINE void Sum(T* out, const T* a, const T* b, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Plus(a[i], b[i]);
}

template <class T>
inline MV_ALWAYS_INLINE void AddSum(T* w, const T* a, const T* b, T* out, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T sum = Plus(w[i], Plus(a[i], b[i]));
    w[i] = sum;
    out[i] = sum;
  }
}

template <class T>
inline MV_ALWAYS_INLINE void Difference(T* out, const T* a, const T* b, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = Change(a[i], b[i]);
}

template <class T>
inline MV_ALWAYS_INLINE void Exchange(T* w, T* current, T* last, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T sum = Plus(w[i], Change(current[i], last[i]));
    w[i] = sum;
    current[i] = sum;
    last[i] = sum;
  }
}

template <class T>
inline MV_ALWAYS_INLINE void SettleAdding(T* current, T* last, const T* table, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T value = table[i];
    current[i] = Plus(value, last[i]);
    last[i] = value;
  }
}

template <class T>
inline MV_ALWAYS_INLINE void SettleSubtracting(T* current, T* last, const T* table, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T value = table[i];
    current[i] = Minus(value, last[i]);
    last[i] = value;
  }
}

template <class T>
inline MV_ALWAYS_INLINE void Descend(T* w, const T* d, T rate, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) w[i] -= rate * d[i];
}

template <class T>
inline MV_ALWAYS_INLINE void ExchangeDescending(T* w, T* current, T* last, T rate, int64_t n) {
  MV_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T result = w[i] - rate * Change(last[i], current[i]);
    w[i] = result;
    current[i] = result;
    last[i] = result;
  }
}

}  // namespace body

// clang-format off: it would take the asterisks of pointers for products.
#define MV_INSTANTIATE_ARITHMETIC(T) \
  MV_VERSIONS(void, Add, (T* w, const T* d, int64_t n), (w, d, n)) \
  MV_VERSIONS(void, AddGet, (T* w, const T* d, T* out, int64_t n), (w, d, out, n)) \
  MV_VERSIONS(void, Sum, (T* out, const T* a, const T* b, int64_t n), (out, a, b, n)) \
  MV_VERSIONS(void, AddSum, (T* w, const T* a, const T* b, T* out, int64_t n), (w, a, b, out, n)) \
  MV_VERSIONS(void, Difference, (T* out, const T* a, const T* b, int64_t n), (out, a, b, n)) \
  MV_VERSIONS(void, Exchange, (T* w, T* current, T* last, int64_t n), (w, current, last, n)) \
  MV_VERSIONS(void, SettleAdding, (T* current, T* last, const T* table, int64_t n), \
              (current, last, table, n))

#define MV_INSTANTIATE_FLOATS(T) \
  MV_VERSIONS(void, SettleSubtracting, (T* current, T* last, const T* table, int64_t n), \
              (current, last, table, n)) \
  MV_VERSIONS(void, Descend, (T* w, const T* d, T rate, int64_t n), (w, d, rate, n)) \
  MV_VERSIONS(void, ExchangeDescending, (T* w, T* current, T* last, T rate, int64_t n), \
              (w, current, last, rate, n))
// clang-format on

MV_INSTANTIATE_ARITHMETIC(float)
MV_INSTANTIATE_ARITHMETIC(double)
MV_INSTANTIATE_ARITHMETIC(int32_t)
MV_INSTANTIATE_ARITHMETIC(int64_t)
MV_VERSIONS(void, Sum, (int8_t* out, const int8_t* a, const int8_t* b, int64_t n), (out, a, b, n))
MV_VERSIONS(void, Sum, (int16_t* out, const int16_t* a, const int16_t* b, int64_t n),
            (out, a, b, n))
MV_VERSIONS(void, Sum, (uint8_t* out, const uint8_t* a, const uint8_t* b, int64_t n),
            (out, a, b, n))
MV_INSTANTIATE_FLOATS(float)
MV_INSTANTIATE_FLOATS(double)

#undef MV_INSTANTIATE_ARITHMETIC
#undef MV_INSTANTIATE_FLOATS

const char* VectorVersion() {
#if MV_HAS_VECTOR_VERSIONS
  if (__builtin_cpu_supports("avx512f")) return "avx512";
  if (__builtin_cpu_supports("avx2")) return "avx2";
#endif
  return "baseline";
}

}  // namespace multiverso::kernels
