// DType: the element type of a table, or of an array that is aggregated.
#pragma once

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
  kInt8 = MV_INT8,
  kInt16 = MV_INT16,
  kUInt8 = MV_UINT8,
  kBool = MV_BOOL,
};

inline bool IsDType(int32_t number) { return number >= 0 && number <= MV_BOOL; }
inline bool IsTableDType(int32_t number) { return number >= 0 && number <= MV_BFLOAT16; }

// Returns whether the type is only for storage: arithmetic is then in float32.
constexpr bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// Returns the type in which arithmetic on elements of that type is done. Deltas, results and state
// of a table have it.
constexpr DType ValueType(DType dtype) { return IsHalf(dtype) ? DType::kFloat32 : dtype; }

constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
      break;
  }
  return 8;
}

constexpr bool IsFloating(DType dtype) {
  return IsHalf(dtype) || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

const char* NameOf(DType dtype);

// Calls `function` with a null pointer of the value type of a table, so that a template can be
// chosen:
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
    case DType::kInt8:  // No table has this type and the next ones.
    case DType::kInt16:
    case DType::kUInt8:
    case DType::kBool:
      break;
  }
  return function(static_cast<float*>(nullptr));
}

}  // namespace multiverso
