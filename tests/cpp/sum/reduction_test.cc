#include "sum/reduction.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace multiverso {
namespace {

template <class T>
T Combined(ReduceOp op, DType dtype, T a, T b) {
  // Several elements, so that vector instructions and the rest of the loop are used.
  std::array<T, 37> left;
  std::array<T, 37> right;
  std::array<T, 37> out;
  left.fill(a);
  right.fill(b);
  Reduction(op, dtype).Combine(reinterpret_cast<char*>(out.data()),
                               reinterpret_cast<const char*>(left.data()),
                               reinterpret_cast<const char*>(right.data()), 37);
  for (const T& each : out) EXPECT_EQ(std::memcmp(&each, &out[0], sizeof(T)), 0);
  return out[0];
}

TEST(Reduction, OfIntegersWrapsAround) {
  EXPECT_EQ(Combined<int8_t>(ReduceOp::kSum, DType::kInt8, 127, 1), -128);
  EXPECT_EQ(Combined<uint8_t>(ReduceOp::kSum, DType::kUInt8, 255, 2), 1);
  EXPECT_EQ(Combined<int16_t>(ReduceOp::kProduct, DType::kInt16, -32768, -1), -32768);
  EXPECT_EQ(Combined<uint8_t>(ReduceOp::kProduct, DType::kUInt8, 17, 16), 16);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Combined<int64_t>(ReduceOp::kSum, DType::kInt64, kMost, 1),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Combined<int64_t>(ReduceOp::kProduct, DType::kInt64, kMost, 2), -2);
}

TEST(Reduction, ComparesWithTheSignOfTheType) {
  EXPECT_EQ(Combined<uint8_t>(ReduceOp::kMax, DType::kUInt8, 200, 3), 200);
  EXPECT_EQ(Combined<int8_t>(ReduceOp::kMax, DType::kInt8, -56, 3), 3);
  EXPECT_EQ(Combined<int32_t>(ReduceOp::kMin, DType::kInt32, -7, 3), -7);
}

TEST(Reduction, KeepsANaNOnEitherSide) {
  const double nan = std::nan("");
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct, ReduceOp::kSum}) {
    EXPECT_TRUE(std::isnan(Combined(op, DType::kFloat64, nan, 1.0))) << NameOf(op);
    EXPECT_TRUE(std::isnan(Combined(op, DType::kFloat64, 1.0, nan))) << NameOf(op);
  }
  EXPECT_EQ(Combined(ReduceOp::kMin, DType::kFloat32, 2.0F, -1.0F), -1.0F);
  EXPECT_EQ(Combined(ReduceOp::kMax, DType::kFloat64, 2.0, -1.0), 2.0);
}

TEST(Reduction, OfBoolsIsABool) {
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      EXPECT_EQ(Combined(ReduceOp::kSum, DType::kBool, a, b), a || b);
      EXPECT_EQ(Combined(ReduceOp::kMax, DType::kBool, a, b), a || b);
      EXPECT_EQ(Combined(ReduceOp::kOr, DType::kBool, a, b), a || b);
      EXPECT_EQ(Combined(ReduceOp::kProduct, DType::kBool, a, b), a && b);
      EXPECT_EQ(Combined(ReduceOp::kMin, DType::kBool, a, b), a && b);
      EXPECT_EQ(Combined(ReduceOp::kAnd, DType::kBool, a, b), a && b);
      EXPECT_EQ(Combined(ReduceOp::kXor, DType::kBool, a, b), a != b);
    }
  }
}

TEST(Reduction, OfBitsIsForIntegersAndBools) {
  EXPECT_EQ(Combined<int16_t>(ReduceOp::kAnd, DType::kInt16, -2, 7), 6);
  EXPECT_EQ(Combined<int32_t>(ReduceOp::kOr, DType::kInt32, 8, 3), 11);
  EXPECT_EQ(Combined<int64_t>(ReduceOp::kXor, DType::kInt64, -1, 1), -2);
  for (const ReduceOp op : {ReduceOp::kAnd, ReduceOp::kOr, ReduceOp::kXor}) {
    EXPECT_FALSE(IsDefined(op, DType::kFloat32)) << NameOf(op);
    EXPECT_FALSE(IsDefined(op, DType::kBFloat16)) << NameOf(op);
    EXPECT_TRUE(IsDefined(op, DType::kBool)) << NameOf(op);
  }
  EXPECT_TRUE(IsDefined(ReduceOp::kMean, DType::kFloat16));
  EXPECT_FALSE(IsDefined(ReduceOp::kMean, DType::kInt64));
}

}  // namespace
}  // namespace multiverso
