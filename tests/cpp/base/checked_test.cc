#include "base/checked.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(CheckedArithmetic, DetectsOverflowAndWritesNothing) {
  int64_t result = -1;
  EXPECT_FALSE(CheckedMultiply(2, kMax / 2 + 1, &result));
  // Without the check, the product would wrap around to 2^32, which is positive.
  EXPECT_FALSE(CheckedMultiply((int64_t{1} << 32) + 1, int64_t{1} << 32, &result));
  EXPECT_FALSE(CheckedAdd(kMax, 1, &result));
  EXPECT_FALSE(CheckedAdd(1, kMax, &result));
  EXPECT_EQ(result, -1);
  EXPECT_TRUE(CheckedMultiply(1, kMax, &result) && CheckedAdd(kMax - 1, 1, &result));
  EXPECT_EQ(result, kMax);
}

}  // namespace
}  // namespace multiverso
