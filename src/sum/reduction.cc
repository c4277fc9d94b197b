#include "sum/reduction.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "base/copy_bytes.h"
#include "numbers/half.h"
#include "numbers/kernels.h"
#include "numbers/vector_versions.h"

namespace multiverso {
namespace {

using CombineFunction = void (*)(char* out, const char* left, const char* right, int64_t count);

// Each operation but the sum is a function of two elements.
//
// Products of integers wrap around, so they are calculated in 64 bits without a sign, of which the
// low bits are those of the result.
struct Times {
  template <class T>
  static T Of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};

// Only a NaN differs from itself. The conditions have no short circuit, so that the loops become
// vector code.
struct Least {
  template <class T>
  static T Of(T a, T b) {
    return static_cast<bool>((a < b) | (a != a)) ? a : b;
  }
};

struct Greatest {
  template <class T>
  static T Of(T a, T b) {
    return static_cast<bool>((a > b) | (a != a)) ? a : b;
  }
};

struct And {
  template <class T>
  static T Of(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct Or {
  template <class T>
  static T Of(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct Xor {
  template <class T>
  static T Of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <class T>
void Summed(char* out, const char* left, const char* right, int64_t count) {
  kernels::Sum(reinterpret_cast<T*>(out), reinterpret_cast<const T*>(left),
               reinterpret_cast<const T*>(right), count);
}

template <class Op, class T>
void Combined(char* out, const char* left, const char* right, int64_t count) {
  auto* const to = reinterpret_cast<T*>(out);
  const auto* const a = reinterpret_cast<const T*>(left);
  const auto* const b = reinterpret_cast<const T*>(right);
  MV_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) to[i] = Op::Of(a[i], b[i]);
}

template <class T>
CombineFunction FunctionOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return Summed<T>;
    case ReduceOp::kProduct:
      return Combined<Times, T>;
    case ReduceOp::kMin:
      return Combined<Least, T>;
    case ReduceOp::kMax:
      return Combined<Greatest, T>;
    case ReduceOp::kAnd:
    case ReduceOp::kOr:
    case ReduceOp::kXor:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::kAnd) return Combined<And, T>;
    return op == ReduceOp::kOr ? Combined<Or, T> : Combined<Xor, T>;
  }
  return nullptr;
}

// Bools are bytes that are 0 or 1, so the operations on bytes are right but for these two.
ReduceOp OnBytes(ReduceOp op) {
  if (op == ReduceOp::kSum) return ReduceOp::kOr;
  return op == ReduceOp::kProduct ? ReduceOp::kAnd : op;
}

CombineFunction FunctionOf(ReduceOp op, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16:
      break;
    case DType::kFloat64:
      return FunctionOf<double>(op);
    case DType::kInt32:
      return FunctionOf<int32_t>(op);
    case DType::kInt64:
      return FunctionOf<int64_t>(op);
    case DType::kInt8:
      return FunctionOf<int8_t>(op);
    case DType::kInt16:
      return FunctionOf<int16_t>(op);
    case DType::kUInt8:
      return FunctionOf<uint8_t>(op);
    case DType::kBool:
      return FunctionOf<uint8_t>(OnBytes(op));
  }
  return FunctionOf<float>(op);
}

}  // namespace

const char* NameOf(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "mean", "product", "min", "max", "and", "or", "xor"};
  static_assert(std::size(kNames) == MV_OP_XOR + 1);
  const auto number = static_cast<int32_t>(op);
  return IsReduceOp(number) ? kNames[number] : "unknown";
}

bool IsDefined(ReduceOp op, DType dtype) {
  if (op == ReduceOp::kMean) return IsFloating(dtype);
  const bool is_bitwise = op == ReduceOp::kAnd || op == ReduceOp::kOr || op == ReduceOp::kXor;
  return !is_bitwise || !IsFloating(dtype);
}

Reduction::Reduction(ReduceOp op, DType dtype)
    : op_(op), dtype_(dtype), combine_(FunctionOf(op, dtype)) {}

void Reduction::Load(const void* elements, int64_t count, char* values) const {
  if (combines_elements()) {
    CopyBytes(values, elements, static_cast<size_t>(count * value_bytes()));
  } else {
    half::ToFloat(dtype_, static_cast<const uint16_t*>(elements), count,
                  reinterpret_cast<float*>(values));
  }
}

void Reduction::Store(const char* results, int64_t terms, int64_t count, void* elements) const {
  if (combines_elements()) {
    if (results != elements) {
      CopyBytes(elements, results, static_cast<size_t>(count * value_bytes()));
    }
    if (op_ == ReduceOp::kMean) Divide(static_cast<char*>(elements), terms, count);
    return;
  }
  auto* const to = static_cast<uint16_t*>(elements);
  if (op_ != ReduceOp::kMean) {
    return half::RoundToNearest(dtype_, reinterpret_cast<const float*>(results), count, to);
  }
  // Results are divided in memory of their own, because other workers read them.
  float part[256];
  for (int64_t at = 0; at < count; at += std::size(part)) {
    const int64_t n = std::min(count - at, static_cast<int64_t>(std::size(part)));
    std::memcpy(part, results + at * value_bytes(), static_cast<size_t>(n * value_bytes()));
    Divide(reinterpret_cast<char*>(part), terms, n);
    half::RoundToNearest(dtype_, part, n, to + at);
  }
}

void Reduction::Divide(char* sums, int64_t terms, int64_t count) const {
  WithType(ValueType(dtype_), [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    if constexpr (std::is_floating_point_v<T>) {  // There is no mean of integers.
      auto* const values = reinterpret_cast<T*>(sums);
      for (int64_t i = 0; i < count; ++i) values[i] /= static_cast<T>(terms);
    }
  });
}

}  // namespace multiverso
