#include "transport/transport.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

TEST(NameRanks, NamesUpToEightAndCountsTheOthers) {
  EXPECT_EQ(NameRanks({}), "no rank");
  EXPECT_EQ(NameRanks({2}), "rank 2");
  EXPECT_EQ(NameRanks({1, 3}), "ranks 1 and 3");
  EXPECT_EQ(NameRanks({0, 1, 3}), "ranks 0, 1 and 3");
  EXPECT_EQ(NameRanks({0, 1, 2, 3, 4, 5, 6, 7}), "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
  EXPECT_EQ(NameRanks({0, 1, 2, 3, 4, 5, 6, 7, 8}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 8");
  EXPECT_EQ(NameRanks({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

}  // namespace
}  // namespace multiverso
