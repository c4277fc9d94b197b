#include "shard/updater.h"

#include <gtest/gtest.h>

#include <limits>

namespace multiverso {
namespace {

constexpr DType kAll[] = {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64};

Update UpdateOf(void* weights, const void* delta, void* out, int64_t count) {
  return Update{weights, nullptr, 0, delta, out, count};
}

std::unique_ptr<const Updater> Made(UpdaterKind kind, DType dtype) {
  auto made = MakeUpdater(kind, dtype);
  EXPECT_TRUE(made.ok()) << made.status().text();
  return std::move(made.value());
}

TEST(AddUpdater, AddsInEveryType) {
  const Hyper hyper{};
  for (const DType dtype : kAll) {
    WithType(dtype, [&](auto* null) {
      using T = std::remove_pointer_t<decltype(null)>;
      T weights[3] = {1, 2, 3};
      const T delta[3] = {10, 20, 30};
      T out[3] = {};
      const auto updater = Made(UpdaterKind::kAdd, dtype);
      updater->Apply(hyper, UpdateOf(weights, delta, nullptr, 2));
      updater->Apply(hyper, UpdateOf(weights, delta, out, 3));
      EXPECT_EQ(weights[0], 21) << NameOf(dtype);
      EXPECT_EQ(weights[1], 42) << NameOf(dtype);
      EXPECT_EQ(weights[2], 33) << NameOf(dtype);
      EXPECT_EQ(out[1], 42) << NameOf(dtype);
    });
  }
}

TEST(SgdUpdater, GoesDownTheGradientAtTheRateOfTheMoment) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    WithType(dtype, [&](auto* null) {
      using T = std::remove_pointer_t<decltype(null)>;
      Hyper hyper{};
      T weights[2] = {1, 2};
      const T delta[2] = {4, 8};
      T out[2] = {};
      const auto updater = Made(UpdaterKind::kSgd, dtype);
      hyper.value[kLearningRate].store(0.5);
      updater->Apply(hyper, UpdateOf(weights, delta, nullptr, 2));
      EXPECT_EQ(weights[0], -1) << NameOf(dtype);
      EXPECT_EQ(weights[1], -2) << NameOf(dtype);
      hyper.value[kLearningRate].store(-0.25);
      updater->Apply(hyper, UpdateOf(weights, delta, out, 2));
      EXPECT_EQ(out[0], 0) << NameOf(dtype);
      EXPECT_EQ(out[1], 0) << NameOf(dtype);
      EXPECT_EQ(weights[1], 0) << NameOf(dtype);
    });
  }
}

TEST(SgdUpdater, IsForFloatingPointTablesOnly) {
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    const auto made = MakeUpdater(UpdaterKind::kSgd, dtype);
    EXPECT_EQ(made.status().code(), Code::kValue);
    EXPECT_NE(made.status().text().find(NameOf(dtype)), std::string::npos) << made.status().text();
  }
}

TEST(MakeUpdater, RefusesKindsThereAreNot) {
  for (const int32_t kind : {-1, 99}) {
    const auto made = MakeUpdater(static_cast<UpdaterKind>(kind), DType::kFloat32);
    EXPECT_EQ(made.status().code(), Code::kValue);
    EXPECT_NE(made.status().text().find(std::to_string(kind)), std::string::npos);
  }
}

TEST(MakeUpdater, NamesItsKinds) {
  EXPECT_STREQ(NameOf(UpdaterKind::kAdd), "add");
  EXPECT_STREQ(NameOf(UpdaterKind::kSgd), "sgd");
  EXPECT_STREQ(NameOf(static_cast<UpdaterKind>(99)), "unknown");
}

TEST(CheckHyper, AllowsEveryFiniteLearningRate) {
  for (const double rate : {0.0, -1.0, 1e-300, 1e300}) {
    EXPECT_TRUE(CheckHyper(kLearningRate, rate).ok()) << rate;
  }
}

TEST(CheckHyper, RefusesWhatIsNoNumberOrNoHyperParameter) {
  using Limits = std::numeric_limits<double>;
  for (const double rate : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
    EXPECT_EQ(CheckHyper(kLearningRate, rate).code(), Code::kValue) << rate;
  }
  for (const int32_t index : {-1, kHyperCount, 1 << 30}) {
    EXPECT_EQ(CheckHyper(index, 0.1).code(), Code::kValue) << index;
  }
}

}  // namespace
}  // namespace multiverso
