// Arithmetic on numbers of elements and bytes: sums and products that detect overflow, rounding.
#pragma once

#include <cstdint>
#include <limits>

namespace multiverso {

constexpr int64_t kPage = 4096;  // bytes of a page of memory

// Returns false if a * b overflows; both must be >= 0.
inline bool CheckedMultiply(int64_t a, int64_t b, int64_t* product) {
  if (a != 0 && b > std::numeric_limits<int64_t>::max() / a) return false;
  *product = a * b;
  return true;
}

// Returns false if a + b overflows; both must be >= 0.
inline bool CheckedAdd(int64_t a, int64_t b, int64_t* sum) {
  if (b > std::numeric_limits<int64_t>::max() - a) return false;
  *sum = a + b;
  return true;
}

// RoundUp returns the smallest multiple of `unit` that is >= value, DivideUp that multiple divided
// by `unit`. Both require that unit > 0 and that value + unit does not overflow.
constexpr int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
constexpr int64_t DivideUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

}  // namespace multiverso
