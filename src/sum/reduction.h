// Reduction: the operation that combines the arrays of workers, element by element. It is a sum
// unless the caller of an aggregate wants another one.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace multiverso {

enum class ReduceOp : int32_t {
  kSum = MV_OP_SUM,
  kMean = MV_OP_MEAN,  // a sum that is divided when it is stored
  kProduct = MV_OP_PRODUCT,
  kMin = MV_OP_MIN,
  kMax = MV_OP_MAX,
  kAnd = MV_OP_AND,
  kOr = MV_OP_OR,
  kXor = MV_OP_XOR,
};

inline bool IsReduceOp(int32_t number) { return number >= 0 && number <= MV_OP_XOR; }

const char* NameOf(ReduceOp op);

// Returns whether the operation is defined: a mean for floats, bitwise operations for the others.
bool IsDefined(ReduceOp op, DType dtype);

// Combines values of ValueType(dtype), to which the elements of an array are converted before.
class Reduction {
 public:
  // The operation must be defined for `dtype`.
  Reduction(ReduceOp op, DType dtype);

  static Reduction Sum(DType dtype) { return Reduction(ReduceOp::kSum, dtype); }

  int64_t element_bytes() const { return SizeOf(dtype_); }
  // Returns the size of a value.
  int64_t value_bytes() const { return SizeOf(ValueType(dtype_)); }
  // Returns whether elements are values already.
  bool combines_elements() const { return !IsHalf(dtype_); }
  // Sets `count` values of `out` to the results for `left` and `right`. `out` may be one of these.
  void Combine(char* out, const char* left, const char* right, int64_t count) const {
    combine_(out, left, right, count);
  }
  // Converts `count` elements to values.
  void Load(const void* elements, int64_t count, char* values) const;
  // Sets `count` elements to the results of `terms` arrays each. If elements are values, `results`
  // may be `elements`.
  void Store(const char* results, int64_t terms, int64_t count, void* elements) const;

 private:
  // Makes a mean of sums of that many terms.
  void Divide(char* sums, int64_t terms, int64_t count) const;

  ReduceOp op_;
  DType dtype_;
  void (*combine_)(char* out, const char* left, const char* right, int64_t count);
};

}  // namespace multiverso
