#include "shard/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace multiverso::kernels {
namespace {

constexpr int64_t kMaxLength = 100;
constexpr int64_t kMargin = 3;  // elements around a run that must not change

template <class T>
std::vector<T> RandomValues(uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(kMaxLength + 2 * kMargin);
  for (T& value : values) {
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(random());
    } else {
      value = std::uniform_real_distribution<T>(-8, 8)(random);
    }
  }
  return values;
}

// Returns the sum as NumPy computes it: integers wrap around.
template <class T>
T Plus(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

// Returns weight - rate * delta, rounded after the multiplication and after the subtraction.
template <class T>
T Descended(T weight, T rate, T delta) {
  const volatile T step = rate * delta;
  return weight - step;
}

// Calls body(offset, length) for every length up to kMaxLength and every offset up to kMargin.
template <class Body>
void ForAllRuns(const Body& body) {
  for (int64_t n = 0; n <= kMaxLength; ++n) {
    for (size_t offset = 0; offset <= kMargin; ++offset) body(offset, n);
  }
}

template <class T>
class Kernels : public ::testing::Test {
 protected:
  const std::vector<T> weights_ = RandomValues<T>(1);
  const std::vector<T> delta_ = RandomValues<T>(2);
};
using AllTypes = ::testing::Types<float, double, int32_t, int64_t>;
TYPED_TEST_SUITE(Kernels, AllTypes);

template <class T>
class FloatKernels : public Kernels<T> {};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(FloatKernels, FloatTypes);

TYPED_TEST(Kernels, AddIsThePlainLoop) {
  ForAllRuns([this](size_t at, int64_t n) {
    auto weights = this->weights_;
    auto expected = this->weights_;
    for (size_t i = at; i < at + static_cast<size_t>(n); ++i) {
      expected[i] = Plus(expected[i], this->delta_[i]);
    }
    Add(weights.data() + at, this->delta_.data() + at, n);
    ASSERT_EQ(weights, expected) << "n = " << n << " from " << at;
  });
}

TYPED_TEST(Kernels, AddGetReturnsTheSumAlsoInPlaceOfTheDelta) {
  ForAllRuns([this](size_t at, int64_t n) {
    auto weights = this->weights_;
    auto expected = this->weights_;
    auto out = this->delta_;
    auto expected_out = this->delta_;
    for (size_t i = at; i < at + static_cast<size_t>(n); ++i) {
      expected_out[i] = expected[i] = Plus(expected[i], this->delta_[i]);
    }
    AddGet(weights.data() + at, this->delta_.data() + at, out.data() + at, n);
    ASSERT_EQ(weights, expected) << "n = " << n << " from " << at;
    ASSERT_EQ(out, expected_out) << "n = " << n << " from " << at;
    weights = this->weights_;
    out = this->delta_;
    AddGet(weights.data() + at, out.data() + at, out.data() + at, n);
    ASSERT_EQ(weights, expected) << "in place, n = " << n << " from " << at;
    ASSERT_EQ(out, expected_out) << "in place, n = " << n << " from " << at;
  });
}

TYPED_TEST(FloatKernels, DescendRoundsLikeNumPy) {
  const TypeParam rate = static_cast<TypeParam>(0.1);
  ForAllRuns([this, rate](size_t at, int64_t n) {
    auto weights = this->weights_;
    auto expected = this->weights_;
    for (size_t i = at; i < at + static_cast<size_t>(n); ++i) {
      expected[i] = Descended(expected[i], rate, this->delta_[i]);
    }
    Descend(weights.data() + at, this->delta_.data() + at, rate, n);
    ASSERT_EQ(weights, expected) << "n = " << n << " from " << at;
  });
}

TYPED_TEST(FloatKernels, ExchangeDescendingRoundsLikeNumPy) {
  const auto rate = static_cast<TypeParam>(1.0 / 3);
  const auto before = RandomValues<TypeParam>(3);
  ForAllRuns([this, rate, &before](size_t at, int64_t n) {
    auto weights = this->weights_;
    auto current = this->delta_;
    auto last = before;
    auto expected = weights;
    auto expected_current = current;
    auto expected_last = last;
    for (size_t i = at; i < at + static_cast<size_t>(n); ++i) {
      expected[i] = Descended(expected[i], rate, last[i] - current[i]);
      expected_current[i] = expected_last[i] = expected[i];
    }
    ExchangeDescending(weights.data() + at, current.data() + at, last.data() + at, rate, n);
    ASSERT_EQ(weights, expected) << "n = " << n << " from " << at;
    ASSERT_EQ(current, expected_current) << "n = " << n << " from " << at;
    ASSERT_EQ(last, expected_last) << "n = " << n << " from " << at;
  });
}

TYPED_TEST(FloatKernels, NaNAndInfinityPassThrough) {
  using Limits = std::numeric_limits<TypeParam>;
  std::vector<TypeParam> weights(40, 1);
  std::vector<TypeParam> delta(40, 1);
  delta[5] = Limits::quiet_NaN();
  delta[17] = Limits::infinity();
  Add(weights.data(), delta.data(), 40);
  EXPECT_TRUE(std::isnan(weights[5]));
  EXPECT_EQ(weights[17], Limits::infinity());
  EXPECT_EQ(weights[4], 2);
  EXPECT_EQ(weights[18], 2);
}

TEST(VectorVersion, IsAKnownVersion) {
  const std::string version = VectorVersion();
  EXPECT_TRUE(version == "avx512" || version == "avx2" || version == "baseline") << version;
}

}  // namespace
}  // namespace multiverso::kernels
