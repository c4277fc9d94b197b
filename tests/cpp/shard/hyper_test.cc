#include "shard/hyper.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

namespace multiverso {
namespace {

UpdaterKind Kind(int number) { return static_cast<UpdaterKind>(number); }

TEST(Hyper, EveryUpdaterHasADistinctName) {
  std::set<std::string> names;
  for (int i = 0; i < kUpdaterKinds; ++i) names.insert(NameOf(Kind(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kUpdaterKinds));
  EXPECT_EQ(names.count("unknown"), 0U);
  EXPECT_STREQ(NameOf(UpdaterKind::kAdd), "add");
  EXPECT_STREQ(NameOf(UpdaterKind::kDcasgda), "dcasgda");
  EXPECT_STREQ(NameOf(Kind(-1)), "unknown");
  EXPECT_STREQ(NameOf(Kind(kUpdaterKinds)), "unknown");
}

TEST(Hyper, DefaultsAreValid) {
  for (int i = 0; i < kUpdaterKinds; ++i) {
    double values[kHyperCount];
    SetDefaultHypers(Kind(i), values);
    EXPECT_TRUE(CheckHypers(Kind(i), values).ok()) << NameOf(Kind(i));
  }
}

TEST(Hyper, UnusedHyperParametersAreZeroAndCannotBeSet) {
  for (int i = 0; i < kUpdaterKinds; ++i) {
    double values[kHyperCount];
    SetDefaultHypers(Kind(i), values);
    double kept[kHyperCount];
    for (double& value : kept) value = 0.5;
    ClearUnusedHypers(Kind(i), kept);
    for (int index = 0; index < kHyperCount; ++index) {
      const bool has = kept[index] != 0;
      EXPECT_EQ(CheckHyper(Kind(i), index, values[index]).ok(), has)
          << NameOf(Kind(i)) << " " << index;
      if (has) continue;
      EXPECT_EQ(values[index], 0) << NameOf(Kind(i)) << " " << index;
    }
  }
}

TEST(Hyper, DescribesTheHyperParametersOfAnUpdater) {
  double values[kHyperCount];
  SetDefaultHypers(UpdaterKind::kNesterov, values);
  EXPECT_EQ(DescribeHypers(UpdaterKind::kNesterov, values), "learning_rate 0.01, momentum 0.9");
  EXPECT_EQ(DescribeHypers(UpdaterKind::kAdd, values), "");
}

TEST(Hyper, ClipNormAndVarianceControlShareANumber) {
  double values[kHyperCount];
  SetDefaultHypers(UpdaterKind::kSgd, values);
  values[kClipNorm] = 2;
  EXPECT_EQ(DescribeHypers(UpdaterKind::kSgd, values), "learning_rate 0.01, clipnorm 2");
  SetDefaultHypers(UpdaterKind::kDcasgd, values);
  values[kVarianceControl] = 0;
  EXPECT_EQ(DescribeHypers(UpdaterKind::kDcasgd, values), "learning_rate 0.01, variance_control 0");
  EXPECT_TRUE(ClipsGradients(UpdaterKind::kFtrl));
  for (const auto kind : {UpdaterKind::kAdd, UpdaterKind::kEasgd, UpdaterKind::kDcasgda}) {
    EXPECT_FALSE(ClipsGradients(kind)) << NameOf(kind);
  }
}

TEST(CheckHyper, AllowsEveryFiniteLearningRate) {
  for (const double rate : {0.0, -1.0, 1e-300, 1e300}) {
    EXPECT_TRUE(CheckHyper(UpdaterKind::kSgd, kLearningRate, rate).ok()) << rate;
  }
}

TEST(CheckHyper, RejectsNonFiniteValuesAndUnknownIndices) {
  using Limits = std::numeric_limits<double>;
  for (const double rate : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
    EXPECT_EQ(CheckHyper(UpdaterKind::kSgd, kLearningRate, rate).code(), Code::kValue) << rate;
  }
  for (const int32_t index : {-1, kMomentum, kHyperCount, 1 << 30}) {
    EXPECT_EQ(CheckHyper(UpdaterKind::kSgd, index, 0.1).code(), Code::kValue) << index;
  }
}

TEST(CheckHyper, EnforcesTheLimitsOfEachHyperParameter) {
  using Limits = std::numeric_limits<double>;
  const auto ok = [](UpdaterKind kind, int index, double value) {
    return CheckHyper(kind, index, value).ok();
  };
  EXPECT_TRUE(ok(UpdaterKind::kMomentum, kMomentum, 1));
  EXPECT_FALSE(ok(UpdaterKind::kMomentum, kMomentum, 1 + Limits::epsilon()));
  EXPECT_TRUE(ok(UpdaterKind::kAdam, kBeta2, 1 - Limits::epsilon() / 2));
  EXPECT_FALSE(ok(UpdaterKind::kAdam, kBeta2, 1));
  EXPECT_FALSE(ok(UpdaterKind::kAdam, kBeta1, -1e-9));
  EXPECT_FALSE(ok(UpdaterKind::kRmsprop, kRho, 1));
  EXPECT_TRUE(ok(UpdaterKind::kAdagrad, kEpsilon, 1e-37));
  EXPECT_FALSE(ok(UpdaterKind::kAdagrad, kEpsilon, 0));
  EXPECT_TRUE(ok(UpdaterKind::kAdagrad, kInitialAccumulatorValue, 0));
  EXPECT_FALSE(ok(UpdaterKind::kEasgd, kElasticForce, 1.01));
  EXPECT_FALSE(ok(UpdaterKind::kDcasgd, kVarianceControl, Limits::infinity()));
  EXPECT_FALSE(ok(UpdaterKind::kFtrl, kLearningRate, 0));
  EXPECT_TRUE(ok(UpdaterKind::kFtrl, kLearningRatePower, 0));
  EXPECT_FALSE(ok(UpdaterKind::kFtrl, kLearningRatePower, 0.5));
}

}  // namespace
}  // namespace multiverso
