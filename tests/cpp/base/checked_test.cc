#include "base/checked.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(CheckedMultiply, GivesTheProductUpToTheLargestNumber) {
  int64_t product = -1;
  ASSERT_TRUE(CheckedMultiply(int64_t{1} << 31, int64_t{1} << 31, &product));
  EXPECT_EQ(product, int64_t{1} << 62);
  ASSERT_TRUE(CheckedMultiply(1, kMax, &product));
  EXPECT_EQ(product, kMax);
  ASSERT_TRUE(CheckedMultiply(0, kMax, &product));
  EXPECT_EQ(product, 0);
}

TEST(CheckedMultiply, DetectsOverflowAndWritesNothing) {
  int64_t product = -1;
  EXPECT_FALSE(CheckedMultiply(2, kMax / 2 + 1, &product));
  EXPECT_FALSE(CheckedMultiply(kMax, kMax, &product));
  // Without the check, the product would wrap around to 2^32, which is positive.
  EXPECT_FALSE(CheckedMultiply((int64_t{1} << 32) + 1, int64_t{1} << 32, &product));
  EXPECT_EQ(product, -1);
}

TEST(CheckedAdd, DetectsOverflow) {
  int64_t sum = -1;
  ASSERT_TRUE(CheckedAdd(kMax - 1, 1, &sum));
  EXPECT_EQ(sum, kMax);
  EXPECT_FALSE(CheckedAdd(kMax, 1, &sum));
  EXPECT_FALSE(CheckedAdd(1, kMax, &sum));
  EXPECT_EQ(sum, kMax);
}

TEST(RoundUp, GivesTheNextMultiple) {
  EXPECT_EQ(RoundUp(0, 4096), 0);
  EXPECT_EQ(RoundUp(1, 4096), 4096);
  EXPECT_EQ(RoundUp(4096, 4096), 4096);
  EXPECT_EQ(RoundUp(4097, 4096), 8192);
}

TEST(DivideUp, RoundsUp) {
  EXPECT_EQ(DivideUp(0, 8), 0);
  EXPECT_EQ(DivideUp(1, 8), 1);
  EXPECT_EQ(DivideUp(8, 8), 1);
  EXPECT_EQ(DivideUp(9, 8), 2);
}

}  // namespace
}  // namespace multiverso
