#include "transport/thread_transport.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "support/limits.h"
#include "support/threads.h"

namespace multiverso {
namespace {

using testing::OnThreads;
using testing::Patiently;
using testing::Shortly;

TEST(ThreadTransport, ExchangesTheBytesOfAllRanksAgainAndAgain) {
  constexpr int kRanks = 4;
  const auto hub = std::make_shared<ThreadHub>(kRanks);
  OnThreads(kRanks, [&](int rank) {
    ThreadTransport transport(hub, rank);
    EXPECT_EQ(transport.rank(), rank);
    EXPECT_EQ(transport.size(), kRanks);
    for (int round = 0; round < 300; ++round) {
      const auto all = transport.Exchange(StrCat(rank, " in ", round), Patiently());
      ASSERT_TRUE(all.ok());
      ASSERT_EQ(all.value().size(), static_cast<size_t>(kRanks));
      for (size_t i = 0; i < kRanks; ++i) ASSERT_EQ(all.value()[i], StrCat(i, " in ", round));
    }
  });
}

TEST(ThreadTransport, PassesEmptyAndBinaryBytes) {
  const auto hub = std::make_shared<ThreadHub>(2);
  const std::vector<std::string> bytes = {"", std::string("\0b", 2)};
  OnThreads(2, [&](int rank) {
    const auto all =
        ThreadTransport(hub, rank).Exchange(bytes[static_cast<size_t>(rank)], Patiently());
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(all.value(), bytes);
  });
}

TEST(ThreadTransport, ReturnsWhenItIsInterrupted) {
  Interrupt interrupt = testing::InterruptAtOnce();
  ThreadTransport first(std::make_shared<ThreadHub>(2), 0);
  EXPECT_EQ(first.Exchange("", WaitLimit::Until(Instant::max(), &interrupt)).status().code(),
            Code::kAborted);
}

TEST(ThreadTransport, NamesLateRanks) {
  const auto hub = std::make_shared<ThreadHub>(3);
  ThreadTransport second(hub, 1);
  const Status status = second.Exchange("here", Shortly()).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.text().find("ranks 0 and 2"), std::string::npos) << status.text();
}

}  // namespace
}  // namespace multiverso
