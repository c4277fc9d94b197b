#include "shard/updater.h"

#include <gtest/gtest.h>

#include <string>

namespace multiverso {
namespace {

constexpr DType kAll[] = {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64};

Update UpdateOf(void* weights, const void* delta, void* out, int64_t count) {
  Update update;
  update.weights = weights;
  update.delta = delta;
  update.out = out;
  update.count = count;
  return update;
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

TEST(SgdUpdater, DescendsAtTheCurrentLearningRate) {
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

TEST(MakeUpdater, AllowsOnlyAddForIntegers) {
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    for (int32_t kind = 1; kind <= static_cast<int32_t>(UpdaterKind::kDcasgd); ++kind) {
      const auto made = MakeUpdater(static_cast<UpdaterKind>(kind), dtype);
      EXPECT_EQ(made.status().code(), Code::kType);
      for (const char* const part : {NameOf(dtype), NameOf(static_cast<UpdaterKind>(kind))}) {
        EXPECT_NE(made.status().text().find(part), std::string::npos) << made.status().text();
      }
    }
  }
}

TEST(MakeUpdater, RejectsUnknownKinds) {
  for (const int32_t kind : {-1, 10, 99}) {
    const auto made = MakeUpdater(static_cast<UpdaterKind>(kind), DType::kFloat32);
    EXPECT_EQ(made.status().code(), Code::kValue);
    EXPECT_NE(made.status().text().find(std::to_string(kind)), std::string::npos);
  }
}

}  // namespace
}  // namespace multiverso
