#include "shard/initializer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/status.h"

namespace multiverso::testing {
namespace {

InitializerSpec SpecOf(InitializerKind kind, double first = 0, double second = 0,
                       uint64_t seed = 0) {
  InitializerSpec spec;
  spec.kind = static_cast<int32_t>(kind);
  spec.first = first;
  spec.second = second;
  spec.seed = seed;
  return spec;
}

// The known answers that the authors of Philox publish with it (kat_vectors of Random123).
TEST(Philox, HasTheKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(InverseNormal, InvertsTheNormalDistributionFunction) {
  for (double p = 1e-15; p < 1; p = p < 0.01 ? p * 3 : p + 0.007) {
    const double x = InverseNormal(p);
    EXPECT_NEAR(0.5 * std::erfc(-x / std::sqrt(2.0)) / p, 1, 1e-13) << p;
    EXPECT_LE(std::fabs(x + InverseNormal(1 - p)), 1e-9 + std::fabs(x) * 1e-3) << p;
  }
  EXPECT_EQ(InverseNormal(0.5), 0);
}

TEST(Initializer, ComputesAnyPartOfARow) {
  for (const auto kind : {InitializerKind::kUniform, InitializerKind::kNormal,
                          InitializerKind::kTruncatedNormal, InitializerKind::kConstant}) {
    const Initializer initializer(SpecOf(kind, 1, 2, 99), DType::kFloat64);
    std::vector<double> row(37);
    const int64_t number = (int64_t{1} << 40) + 5;
    initializer.Fill(number, 0, 37, row.data());
    for (int64_t first = 0; first < 37; ++first) {
      std::vector<double> part(static_cast<size_t>(37 - first));
      initializer.Fill(number, first, 37 - first, part.data());
      EXPECT_EQ(part, std::vector<double>(row.begin() + first, row.end())) << first;
    }
  }
}

TEST(Initializer, DependsOnSeedAndRow) {
  const auto row_of = [](uint64_t seed, int64_t row) {
    std::vector<float> values(4);
    Initializer(SpecOf(InitializerKind::kUniform, 0, 1, seed), DType::kFloat32)
        .Fill(row, 0, 4, values.data());
    return values;
  };
  EXPECT_EQ(row_of(1, 2), row_of(1, 2));
  EXPECT_NE(row_of(1, 2), row_of(2, 2));
  EXPECT_NE(row_of(1, 2), row_of((uint64_t{1} << 32) + 1, 2));
  EXPECT_NE(row_of(1, 2), row_of(1, 3));
  EXPECT_NE(row_of(1, 2), row_of(1, (int64_t{1} << 32) + 2));
}

TEST(Initializer, KeepsItsLimits) {
  std::vector<float> values(100'000);
  Initializer(SpecOf(InitializerKind::kTruncatedNormal, 0, 1, 3), DType::kFloat32)
      .Fill(0, 0, 100'000, values.data());
  for (const float value : values) ASSERT_LE(std::fabs(value), 2);
  Initializer(SpecOf(InitializerKind::kUniform, -1, 3, 3), DType::kFloat32)
      .Fill(0, 0, 100'000, values.data());
  for (const float value : values) ASSERT_TRUE(value >= -1 && value <= 3) << value;
}

TEST(Initializer, AddsBothPartsOfAConstantInt64) {
  const double large = 0x1p62;
  int64_t values[2] = {};
  Initializer(SpecOf(InitializerKind::kConstant, large, -1), DType::kInt64).Fill(3, 1, 2, values);
  EXPECT_EQ(values[0], (int64_t{1} << 62) - 1);
  EXPECT_EQ(values[1], values[0]);
  Initializer(SpecOf(InitializerKind::kConstant, 0, 5), DType::kInt64).Fill(0, 0, 1, values);
  EXPECT_EQ(values[0], 5);
  EXPECT_EQ(SpecOf(InitializerKind::kConstant, large, -1).Describe(),
            "Constant(4611686018427387903)");
  EXPECT_TRUE(SpecOf(InitializerKind::kConstant, -0x1p63, 1).Check(DType::kInt64).ok());
  EXPECT_FALSE(SpecOf(InitializerKind::kConstant, -0x1p63, -1).Check(DType::kInt64).ok());
  EXPECT_FALSE(SpecOf(InitializerKind::kConstant, 0x1p62, 0x1p62).Check(DType::kInt64).ok());
  EXPECT_FALSE(SpecOf(InitializerKind::kConstant, 0x1p30, 0x1p30).Check(DType::kInt32).ok());
}

TEST(InitializerSpec, RejectsWhatNoTableCanHave) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto check = [](const InitializerSpec& spec, DType dtype) { return spec.Check(dtype); };
  EXPECT_TRUE(check(SpecOf(InitializerKind::kConstant, 3), DType::kInt32).ok());
  EXPECT_TRUE(check(SpecOf(InitializerKind::kZeros), DType::kInt64).ok());
  EXPECT_TRUE(check(SpecOf(InitializerKind::kUniform, 2, 2), DType::kFloat32).ok());
  EXPECT_TRUE(IsError(check(SpecOf(InitializerKind{6}), DType::kFloat32), Code::kValue, "0 to 5"));
  EXPECT_TRUE(IsError(check(SpecOf(InitializerKind::kUniform, 0, 1), DType::kInt32), Code::kType,
                      "table of integers"));
  EXPECT_TRUE(
      IsError(check(SpecOf(InitializerKind::kConstant, 0.5), DType::kInt32), Code::kValue, "0.5"));
  EXPECT_TRUE(IsError(check(SpecOf(InitializerKind::kConstant, 4e9), DType::kInt32), Code::kValue));
  EXPECT_TRUE(
      IsError(check(SpecOf(InitializerKind::kConstant, 1e39), DType::kFloat32), Code::kValue));
  EXPECT_TRUE(
      IsError(check(SpecOf(InitializerKind::kConstant, nan), DType::kFloat64), Code::kValue));
  EXPECT_TRUE(IsError(check(SpecOf(InitializerKind::kUniform, 1, 0), DType::kFloat32), Code::kValue,
                      "minval"));
  EXPECT_TRUE(IsError(check(SpecOf(InitializerKind::kNormal, 1, -1), DType::kFloat32), Code::kValue,
                      "stddev"));
}

}  // namespace
}  // namespace multiverso::testing
