#include "numbers/hyper.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/status.h"

namespace multiverso::testing {
namespace {

TEST(Hyper, OnlyWhatAnUpdaterUsesIsKeptAndCanBeSet) {
  for (int i = 0; i < kUpdaterKinds; ++i) {
    const auto kind = static_cast<UpdaterKind>(i);
    double values[kHyperCount];
    SetDefaultHypers(kind, values);
    EXPECT_TRUE(IsOk(CheckHypers(kind, values))) << NameOf(kind);
    double kept[kHyperCount];
    for (double& value : kept) value = 0.5;
    ClearUnusedHypers(kind, kept);
    for (int index = 0; index < kHyperCount; ++index) {
      const bool is_used = kept[index] != 0;
      EXPECT_EQ(CheckHyper(kind, index, values[index]).ok(), is_used) << NameOf(kind) << index;
      EXPECT_TRUE(is_used || values[index] == 0) << NameOf(kind) << index;
    }
  }
}

// The nearest numbers on both sides of each limit.
TEST(CheckHyper, AllowsTheLimitsThemselves) {
  constexpr double kEpsilonOfOne = std::numeric_limits<double>::epsilon();
  struct Case {
    UpdaterKind kind;
    int index;
    double value;
    bool is_allowed;
  };
  for (const Case& c : {Case{UpdaterKind::kSgd, kLearningRate, -1e300, true},
                        Case{UpdaterKind::kMomentum, kMomentum, 1, true},
                        Case{UpdaterKind::kMomentum, kMomentum, 1 + kEpsilonOfOne, false},
                        Case{UpdaterKind::kAdam, kBeta2, 1 - kEpsilonOfOne / 2, true},
                        Case{UpdaterKind::kAdam, kBeta2, 1, false},
                        Case{UpdaterKind::kAdagrad, kEpsilon, 1e-37, true},
                        Case{UpdaterKind::kAdagrad, kInitialAccumulatorValue, 0, true},
                        Case{UpdaterKind::kFtrl, kLearningRatePower, 0, true}}) {
    EXPECT_EQ(CheckHyper(c.kind, c.index, c.value).ok(), c.is_allowed)
        << NameOf(c.kind) << " " << c.index << " " << c.value;
  }
}

}  // namespace
}  // namespace multiverso::testing
