#include "base/dtype.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

namespace multiverso {
namespace {

constexpr DType kAllDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt32,
                                DType::kInt64,   DType::kFloat16, DType::kBFloat16};

TEST(DType, IsANumberFromZeroToFive) {
  EXPECT_FALSE(IsDType(-1));
  for (const DType dtype : kAllDTypes) EXPECT_TRUE(IsDType(static_cast<int32_t>(dtype)));
  EXPECT_FALSE(IsDType(6));
}

TEST(DType, HasItsNameInNumPy) {
  EXPECT_STREQ(NameOf(DType::kFloat32), "float32");
  EXPECT_STREQ(NameOf(DType::kFloat64), "float64");
  EXPECT_STREQ(NameOf(DType::kInt32), "int32");
  EXPECT_STREQ(NameOf(DType::kInt64), "int64");
  EXPECT_STREQ(NameOf(DType::kFloat16), "float16");
  EXPECT_STREQ(NameOf(DType::kBFloat16), "bfloat16");
  EXPECT_STREQ(NameOf(static_cast<DType>(9)), "unknown");
}

TEST(DType, SelectsAValueTypeOfItsSizeAndKind) {
  for (const DType dtype : kAllDTypes) {
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
