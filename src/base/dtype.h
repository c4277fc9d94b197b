// DType: the element type of a table.
#ifndef MULTIVERSO_BASE_DTYPE_H_
#define MULTIVERSO_BASE_DTYPE_H_

#include <cstdint>

#include "multiverso/constants.h"

namespace multiverso {

enum class DType : int32_t {
  kFloat32 = MV_FLOAT32,
  kFloat64 = MV_FLOAT64,
  kInt32 = MV_INT32,
  kInt64 = MV_INT64,
  kFloat16 = MV_FLOAT16,
  kBFloat16 = MV_BFLOAT16,
};

inline bool IsDType(int32_t number) { return number >= 0 && number <= 5; }

// Returns whether the type is only for storage: a table of 16-bit parameters calculates in float32.
constexpr bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// Returns the type of deltas, results and state of a table whose parameters have that type.
constexpr DType ValueType(DType dtype) { return IsHalf(dtype) ? DType::kFloat32 : dtype; }

constexpr int64_t SizeOf(DType dtype) {
  if (IsHalf(dtype)) return 2;
  return (dtype == DType::kFloat32 || dtype == DType::kInt32) ? 4 : 8;
}

constexpr bool IsFloating(DType dtype) {
  return IsHalf(dtype) || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

const char* NameOf(DType dtype);

// Calls `function` with a null pointer of the value type, so that a template can be chosen:
//   WithType(dtype, [&](auto* null) { using T = std::remove_pointer_t<decltype(null)>; ... });
template <class Function>
auto WithType(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kFloat64:
      return function(static_cast<double*>(nullptr));
    case DType::kInt32:
      return function(static_cast<int32_t*>(nullptr));
    case DType::kInt64:
      return function(static_cast<int64_t*>(nullptr));
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16:
      break;
  }
  return function(static_cast<float*>(nullptr));
}

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_DTYPE_H_
