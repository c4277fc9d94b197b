#include "base/dtype.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

namespace multiverso {
namespace {

constexpr DType kTableDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt32,
                                  DType::kInt64,   DType::kFloat16, DType::kBFloat16};

TEST(DType, IsANumberFromZeroToNineAndThatOfATableFromZeroToFive) {
  for (int32_t number = -1; number <= 10; ++number) {
    EXPECT_EQ(IsDType(number), number >= 0 && number <= 9) << number;
    EXPECT_EQ(IsTableDType(number), number >= 0 && number <= 5) << number;
  }
}

TEST(DType, HasItsNameInNumPy) {
  EXPECT_STREQ(NameOf(DType::kFloat32), "float32");
  EXPECT_STREQ(NameOf(DType::kFloat64), "float64");
  EXPECT_STREQ(NameOf(DType::kInt32), "int32");
  EXPECT_STREQ(NameOf(DType::kInt64), "int64");
  EXPECT_STREQ(NameOf(DType::kFloat16), "float16");
  EXPECT_STREQ(NameOf(DType::kBFloat16), "bfloat16");
  EXPECT_STREQ(NameOf(DType::kInt8), "int8");
  EXPECT_STREQ(NameOf(DType::kInt16), "int16");
  EXPECT_STREQ(NameOf(DType::kUInt8), "uint8");
  EXPECT_STREQ(NameOf(DType::kBool), "bool");
  EXPECT_STREQ(NameOf(static_cast<DType>(10)), "unknown");
}

TEST(DType, SelectsAValueTypeOfItsSizeAndKind) {
  for (const DType dtype : kTableDTypes) {
    WithType(dtype, [dtype](auto* null) {
      using T = std::remove_pointer_t<decltype(null)>;
      EXPECT_EQ(SizeOf(ValueType(dtype)), static_cast<int64_t>(sizeof(T))) << NameOf(dtype);
      EXPECT_EQ(IsFloating(dtype), std::is_floating_point_v<T>) << NameOf(dtype);
      EXPECT_EQ(std::string(NameOf(dtype)).compare(0, 3, "int") == 0, std::is_integral_v<T>);
    });
    EXPECT_EQ(IsHalf(dtype), SizeOf(dtype) == 2) << NameOf(dtype);
  }
}

}  // namespace
}  // namespace multiverso
