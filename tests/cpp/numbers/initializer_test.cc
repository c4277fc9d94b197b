#include "numbers/initializer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/status.h"

namespace multiverso::testing {
namespace {

InitializerSpec SpecOf(InitializerKind kind, double first = 0, double second = 0) {
  InitializerSpec spec;
  spec.kind = static_cast<int32_t>(kind);
  spec.first = first;
  spec.second = second;
  return spec;
}

TEST(InverseNormal, InvertsTheNormalDistributionFunction) {
  for (double p = 1e-15; p < 1; p = p < 0.01 ? p * 3 : p + 0.007) {
    const double x = InverseNormal(p);
    EXPECT_NEAR(0.5 * std::erfc(-x / std::sqrt(2.0)) / p, 1, 1e-13) << p;
    EXPECT_LE(std::fabs(x + InverseNormal(1 - p)), 1e-9 + std::fabs(x) * 1e-3) << p;
  }
  EXPECT_EQ(InverseNormal(0.5), 0);
}

TEST(InitializerSpec, RejectsWhatNoTableCanHave) {
  struct Case {
    InitializerSpec spec;
    DType dtype;
    Code code;
    const char* words;
  };
  using Kind = InitializerKind;
  for (const Case& c :
       {Case{SpecOf(Kind::kUniform, 2, 2), DType::kFloat32, Code::kOk, ""},
        Case{SpecOf(Kind{6}), DType::kFloat32, Code::kValue, "0 to 5"},
        Case{SpecOf(Kind::kUniform, 0, 1), DType::kInt32, Code::kType, "integers"},
        Case{SpecOf(Kind::kConstant, 0.5), DType::kInt32, Code::kValue, "0.5"},
        Case{SpecOf(Kind::kConstant, 4e9), DType::kInt32, Code::kValue, "4"},
        Case{SpecOf(Kind::kConstant, 1e39), DType::kFloat32, Code::kValue, "1"},
        Case{SpecOf(Kind::kUniform, 1, 0), DType::kFloat32, Code::kValue, "minval"},
        Case{SpecOf(Kind::kNormal, 1, -1), DType::kFloat32, Code::kValue, "stddev"},
        Case{SpecOf(Kind::kConstant, std::nan("")), DType::kFloat64, Code::kValue, "can hold"}}) {
    EXPECT_TRUE(IsError(c.spec.Check(c.dtype), c.code, c.words)) << c.spec.Describe();
  }
}

}  // namespace
}  // namespace multiverso::testing
