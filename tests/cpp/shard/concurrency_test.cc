// Several ranks operate on one shard concurrently.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/memory_shard.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

constexpr int kRanks = 4;

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
