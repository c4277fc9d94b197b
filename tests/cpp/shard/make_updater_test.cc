#include "shard/make_updater.h"

#include <gtest/gtest.h>

#include <string>

#include "support/status.h"

namespace multiverso::testing {
namespace {

constexpr DType kAllTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64};

Update UpdateOf(void* weights, const void* delta, void* out, int64_t count) {
  Update update;
  update.weights = weights;
  update.delta = delta;
  update.out = out;
  update.count = count;
  return update;
}

TEST(AddUpdater, AddsInEveryType) {
  const Hyper hyper{};
  for (const DType dtype : kAllTypes) {
    WithType(dtype, [&](auto* null) {
      using T = std::remove_pointer_t<decltype(null)>;
      T weights[3] = {1, 2, 3};
      const T delta[3] = {10, 20, 30};
      T out[3] = {};
      const auto updater = ValueOf(MakeUpdater(UpdaterKind::kAdd, dtype));
      updater->Apply(hyper, UpdateOf(weights, delta, nullptr, 2));
      updater->Apply(hyper, UpdateOf(weights, delta, out, 3));
      EXPECT_EQ(weights[0], 21) << NameOf(dtype);
      EXPECT_EQ(weights[1], 42) << NameOf(dtype);
      EXPECT_EQ(weights[2], 33) << NameOf(dtype);
      EXPECT_EQ(out[1], 42) << NameOf(dtype);
    });
  }
}

TEST(SgdUpdater, DescendsAtTheCurrentLearningRate) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    WithType(dtype, [&](auto* null) {
      using T = std::remove_pointer_t<decltype(null)>;
      Hyper hyper{};
      T weights[2] = {1, 2};
      const T delta[2] = {4, 8};
      T out[2] = {};
      const auto updater = ValueOf(MakeUpdater(UpdaterKind::kSgd, dtype));
      hyper.values[kLearningRate].store(0.5);
      updater->Apply(hyper, UpdateOf(weights, delta, nullptr, 2));
      EXPECT_EQ(weights[0], -1) << NameOf(dtype);
      EXPECT_EQ(weights[1], -2) << NameOf(dtype);
      hyper.values[kLearningRate].store(-0.25);
      updater->Apply(hyper, UpdateOf(weights, delta, out, 2));
      EXPECT_EQ(out[0], 0) << NameOf(dtype);
      EXPECT_EQ(out[1], 0) << NameOf(dtype);
      EXPECT_EQ(weights[1], 0) << NameOf(dtype);
    });
  }
}

TEST(MakeUpdater, AllowsOnlyAddForIntegers) {
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    for (int32_t kind = 1; kind < kUpdaterKinds; ++kind) {
      const auto updater = static_cast<UpdaterKind>(kind);
      EXPECT_TRUE(IsError(MakeUpdater(updater, dtype), Code::kType, "integers", "updater"));
    }
  }
}

TEST(MakeUpdater, RejectsUnknownKinds) {
  for (const int32_t kind : {-1, kUpdaterKinds, 99}) {
    EXPECT_TRUE(IsError(MakeUpdater(static_cast<UpdaterKind>(kind), DType::kFloat32), Code::kValue,
                        std::to_string(kind)));
  }
}

}  // namespace
}  // namespace multiverso::testing
