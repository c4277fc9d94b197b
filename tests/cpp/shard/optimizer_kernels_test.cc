#include "shard/optimizer_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace multiverso::kernels {
namespace {

constexpr int64_t kMaxLength = 70;
constexpr int64_t kMargin = 3;  // elements around a run that must not change

template <class T>
class OptimizerKernels : public ::testing::Test {
 protected:
  using Values = std::vector<T>;

  static Values RandomValues(uint32_t seed, T min) {
    std::mt19937_64 random(seed);
    Values values(kMaxLength + 2 * kMargin);
    for (T& value : values) value = std::uniform_real_distribution<T>(min, 8)(random);
    return values;
  }

  // Checks that update(weights, first state, second state, gradient, n) of any run equals the
  // update of each element alone, which uses no vectors, and changes no other element.
  template <class Run>
  void ExpectTheSameInVectors(const char* name, Run update) {
    const Values w = RandomValues(1, -8);
    const Values a = RandomValues(2, 0);
    const Values b = RandomValues(3, 0);
    const Values g = RandomValues(4, -8);
    for (int64_t n = 0; n <= kMaxLength; ++n) {
      for (int64_t at = 0; at <= kMargin; ++at) {
        Values w_run = w, a_run = a, b_run = b;
        update(w_run.data() + at, a_run.data() + at, b_run.data() + at, g.data() + at, n);
        Values w_each = w, a_each = a, b_each = b;
        for (int64_t i = at; i < at + n; ++i) {
          update(w_each.data() + i, a_each.data() + i, b_each.data() + i, g.data() + i, 1);
        }
        ASSERT_EQ(w_run, w_each) << name << ", n = " << n << " from " << at;
        ASSERT_EQ(a_run, a_each) << name << ", n = " << n << " from " << at;
        ASSERT_EQ(b_run, b_each) << name << ", n = " << n << " from " << at;
      }
    }
  }
};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(OptimizerKernels, FloatTypes);

TYPED_TEST(OptimizerKernels, AreBitwiseIdenticalInVectorsAndForSingleElements) {
  using T = TypeParam;
  const T r = static_cast<T>(0.1);
  const T e = static_cast<T>(1e-3);
  const T keep = static_cast<T>(0.7);
  const T take = static_cast<T>(1 - 0.7);
  this->ExpectTheSameInVectors(
      "Momentum", [=](T* w, T* a, T*, const T* g, int64_t n) { Momentum(w, a, g, r, keep, n); });
  this->ExpectTheSameInVectors(
      "Nesterov", [=](T* w, T* a, T*, const T* g, int64_t n) { Nesterov(w, a, g, r, keep, n); });
  this->ExpectTheSameInVectors("Adagrad", [=](T* w, T* a, T*, const T* g, int64_t n) {
    Adagrad(w, a, g, r, keep, e, take, n);
  });
  this->ExpectTheSameInVectors("Rmsprop", [=](T* w, T* a, T*, const T* g, int64_t n) {
    Rmsprop(w, a, g, r, keep, take, e, r, n);
  });
  this->ExpectTheSameInVectors("RmspropMomentum", [=](T* w, T* a, T* b, const T* g, int64_t n) {
    RmspropMomentum(w, a, b, g, r, keep, take, e, r, keep, n);
  });
  this->ExpectTheSameInVectors("Adadelta", [=](T* w, T* a, T* b, const T* g, int64_t n) {
    Adadelta(w, a, b, g, r, keep, take, e, n);
  });
  this->ExpectTheSameInVectors(
      "Adam", [=](T* w, T* a, T* b, const T* g, int64_t n) { Adam(w, a, b, g, r, take, r, e, n); });
  this->ExpectTheSameInVectors("Amsgrad", [=](T* w, T* a, T* b, const T* g, int64_t n) {
    std::vector<T> largest(static_cast<size_t>(n), T{20});
    Amsgrad(w, a, b, largest.data(), g, r, take, r, e, n);
  });
  for (const T power : {static_cast<T>(0.5), static_cast<T>(0.7)}) {
    const FtrlOptions<T> options = {r, power, e, 2, keep, take};
    this->ExpectTheSameInVectors(
        "Ftrl", [=](T* w, T* a, T* b, const T* g, int64_t n) { Ftrl(w, a, b, g, options, n); });
  }
  this->ExpectTheSameInVectors(
      "Pull", [=](T* w, T*, T*, const T* g, int64_t n) { Pull(w, g, r, T{3}, n); });
  this->ExpectTheSameInVectors("Compensate", [=](T* w, T* a, T*, const T* g, int64_t n) {
    Compensate(w, a, g, r, keep, n);
  });
  this->ExpectTheSameInVectors("CompensateAdaptively",
                               [=](T* w, T* a, T* b, const T* g, int64_t n) {
                                 CompensateAdaptively(w, a, b, g, r, keep, keep, take, e, n);
                               });
  this->ExpectTheSameInVectors("Remember",
                               [=](T* w, T* a, T*, const T*, int64_t n) { Remember(a, w, n); });
}

TYPED_TEST(OptimizerKernels, AdagradStartsWithTheInitialValueIfTheSumIsZero) {
  using T = TypeParam;
  T w[3] = {0, 0, 0};
  T sum[3] = {0, 8, 0};
  const T g[3] = {3, 1, 0};
  Adagrad(w, sum, g, T{1}, T{7}, std::numeric_limits<T>::min(), T{0}, 3);
  EXPECT_EQ(sum[0], 16);
  EXPECT_EQ(sum[1], 9);
  EXPECT_EQ(sum[2], 7);
  EXPECT_EQ(w[0], T{-3} / 4);
  EXPECT_EQ(w[2], 0);
}

TYPED_TEST(OptimizerKernels, SumsSquaresInDoublePrecision) {
  using T = TypeParam;
  std::vector<T> g(100, T{1});
  g[3] = static_cast<T>(1 << 20);  // Its square plus 1 is not a float.
  for (int64_t n = 0; n <= 100; ++n) {
    const double large = n > 3 ? std::ldexp(1.0, 40) - 1 : 0;
    ASSERT_EQ(SquareSum(g.data(), n), static_cast<double>(n) + large) << n;
  }
}

TYPED_TEST(OptimizerKernels, FtrlIsZeroInsideTheL1StrengthAndWithoutSquares) {
  using T = TypeParam;
  T w[3] = {5, 1, 5};
  T linear[3] = {0, 3, 0};
  T sum[3] = {0, 16, 0};
  const T g[3] = {0, 3, std::numeric_limits<T>::min()};
  Ftrl(w, linear, sum, g, {T{0.5}, T{0.5}, T{0}, T{2}, T{0}, T{1}}, 3);
  EXPECT_EQ(linear[0], 5);  // The shrinkage is not a gradient, so the sum stays 0.
  EXPECT_EQ(w[0], 0);
  EXPECT_EQ(sum[1], 25);
  EXPECT_EQ(linear[1], 3 + (3 + 1 - (5 - 4) / T{0.5}));
  EXPECT_EQ(w[1], (2 - T{5}) / 10);
  EXPECT_EQ(w[2], 0);
}

TYPED_TEST(OptimizerKernels, CompensateOnlyRememberedElements) {
  using T = TypeParam;
  T w[4] = {5, 5, 5, 5};
  T seen[4] = {0, 0, 0, 0};
  const T old[2] = {3, 0};
  Remember(seen + 1, old, 2);
  const T g[4] = {2, 2, 2, 2};
  Compensate(w, seen, g, T{1}, T{1}, 4);
  EXPECT_EQ(w[0], 5 - 2);
  EXPECT_EQ(w[1], 5 - (2 + 4 * 2));
  EXPECT_EQ(w[2], 5 - (2 + 4 * 5));
  EXPECT_EQ(w[3], 5 - 2);
}

TYPED_TEST(OptimizerKernels, PullMovesTowardsTheMeanOfThePositions) {
  using T = TypeParam;
  T w[2] = {4, -4};
  const T x[2] = {20, 0};  // x is the sum of two positions.
  Pull(w, x, T{0.5}, T{2}, 2);
  EXPECT_EQ(w[0], 10);
  EXPECT_EQ(w[1], 0);
}

}  // namespace
}  // namespace multiverso::kernels
