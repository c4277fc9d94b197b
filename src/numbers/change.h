// The change of a value that may be infinite (Change).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/compiler.h"

namespace multiverso {

// Returns a - b, and 0 if both have the same bits: an infinity that has not changed has no change.
// Compilers vectorize this comparison of bits, but not one of floats.
template <class T>
inline MV_ALWAYS_INLINE T Change(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(uint64_t), uint64_t, uint32_t>;
  static_assert(sizeof(T) == sizeof(Bits));
  Bits a_bits;
  Bits b_bits;
  Bits change;
  std::memcpy(&a_bits, &a, sizeof(T));
  std::memcpy(&b_bits, &b, sizeof(T));
  if constexpr (std::is_integral_v<T>) {
    change = a_bits - b_bits;  // signed overflow would be undefined
  } else {
    const T difference = a - b;
    std::memcpy(&change, &difference, sizeof(T));
    change &= a_bits == b_bits ? Bits{0} : ~Bits{0};
  }
  T result;
  std::memcpy(&result, &change, sizeof(T));
  return result;
}

}  // namespace multiverso
