// Reduction: the operation that combines the arrays of workers, element by element. It is a sum
// unless the caller of an aggregate wants another one.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace multiverso {

enum class ReduceOp : int32_t {
  kSum = MV_OP_SUM,
  kMean = MV_OP_MEAN,  // a sum that each worker divides at the end
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

class Reduction {
 public:
  // The elements are values of ValueType(dtype). The operation must be defined for `dtype`.
  Reduction(ReduceOp op, DType dtype);

  static Reduction Sum(DType dtype) { return Reduction(ReduceOp::kSum, dtype); }

  int64_t element_bytes() const { return element_bytes_; }
  // Sets `count` elements of `out` to the results for `left` and `right`. `out` may be one of
  // these.
  void Combine(char* out, const char* left, const char* right, int64_t count) const {
    combine_(out, left, right, count);
  }

 private:
  int64_t element_bytes_;
  void (*combine_)(char* out, const char* left, const char* right, int64_t count);
};

}  // namespace multiverso
