// Several ranks operate on one shard concurrently.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/memory_shard.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

constexpr int kRanks = 4;

TEST(ConcurrentAdds, SumExactlyAcrossAllKindsOfCalls) {
  constexpr int64_t kRows = 3000;
  constexpr int64_t kColumns = 8;
  constexpr int kAdds = 100;
  const MemoryShard<int64_t> memory(kRows, kColumns);
  OnThreads(kRanks, [&](int rank) {
    Shard shard = memory.For(rank);
    const std::vector<int64_t> ones(kRows * kColumns, 1);
    std::vector<int64_t> out(kRows * kColumns);
    const int64_t ids[] = {0, kRows - 1, 0, kRows / 2};
    for (int i = 0; i < kAdds; ++i) {
      ASSERT_TRUE(Call(&shard, Request::Add(ones.data())).ok());
      ASSERT_TRUE(Call(&shard, Request::AddGet(ones.data(), out.data())).ok());
      ASSERT_TRUE(Call(&shard, Request::AddRows(ids, 4, ones.data())).ok());
      // The rank's result contains all adds that the rank itself has made.
      ASSERT_GE(*std::min_element(out.begin(), out.end()), 2 * i + 2);
    }
  });
  const int64_t whole = 2 * kRanks * kAdds;
  EXPECT_EQ(memory.values()[1 * kColumns], whole);
  EXPECT_EQ(memory.values()[0], whole + 2 * kRanks * kAdds);
  EXPECT_EQ(memory.values()[(kRows / 2) * kColumns], whole + kRanks * kAdds);
  EXPECT_EQ(memory.values()[kRows * kColumns - 1], whole + kRanks * kAdds);
}

// Within a stripe, a get sees each add entirely or not at all.
TEST(ConcurrentGets, SeeOnlyCompleteAdds) {
  constexpr int64_t kElements = 1024;
  constexpr int kCalls = 20000;
  const MemoryShard<double> memory(kElements, 1);
  OnThreads(kRanks, [&](int rank) {
    Shard shard = memory.For(rank);
    std::vector<double> values(kElements, 1);
    for (int i = 0; i < kCalls; ++i) {
      if (rank % 2 == 0) {
        ASSERT_TRUE(Call(&shard, Request::Add(values.data())).ok());
        continue;
      }
      ASSERT_TRUE(Call(&shard, Request::Get(values.data())).ok());
      ASSERT_EQ(std::count(values.begin(), values.end(), values[0]), kElements);
    }
  });
  EXPECT_EQ(memory.values()[0], 2 * kCalls);
}

}  // namespace
}  // namespace multiverso::testing
