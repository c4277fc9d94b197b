#include "support/thread_transport.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "support/limits.h"
#include "support/status.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

TEST(ThreadTransport, ExchangesTheBytesOfAllRanksRepeatedly) {
  constexpr int kRanks = 4;
  const auto hub = std::make_shared<ThreadHub>(kRanks);
  OnThreads(kRanks, [&](int rank) {
    ThreadTransport transport(hub, rank);
    EXPECT_EQ(transport.rank(), rank);
    EXPECT_EQ(transport.size(), kRanks);
    for (int round = 0; round < 300; ++round) {
      const auto all = ValueOf(transport.Exchange(StrCat(rank, " in ", round), Patiently()));
      ASSERT_EQ(all.size(), static_cast<size_t>(kRanks));
      for (size_t i = 0; i < kRanks; ++i) ASSERT_EQ(all[i], StrCat(i, " in ", round));
    }
  });
}

TEST(ThreadTransport, PassesEmptyAndBinaryBytes) {
  const auto hub = std::make_shared<ThreadHub>(2);
  const std::vector<std::string> bytes = {"", std::string("\0b", 2)};
  OnThreads(2, [&](int rank) {
    const auto all =
        ValueOf(ThreadTransport(hub, rank).Exchange(bytes[static_cast<size_t>(rank)], Patiently()));
    EXPECT_EQ(all, bytes);
  });
}

TEST(ThreadTransport, ReturnsWhenItIsInterrupted) {
  Interrupt interrupt = InterruptAtOnce();
  ThreadTransport first(std::make_shared<ThreadHub>(2), 0);
  EXPECT_EQ(first.Exchange("", WaitLimit::Until(Instant::max(), &interrupt)).status().code(),
            Code::kAborted);
}

TEST(ThreadTransport, NamesLateRanks) {
  const auto hub = std::make_shared<ThreadHub>(3);
  ThreadTransport second(hub, 1);
  EXPECT_TRUE(IsError(second.Exchange("here", Shortly()), Code::kTimeout, "ranks 0 and 2"));
}

}  // namespace
}  // namespace multiverso::testing
