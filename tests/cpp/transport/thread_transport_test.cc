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
using testing::WithoutWaiting;

TEST(ThreadTransport, GivesEverybodysBytesToEverybodyRoundAfterRound) {
  constexpr int kRanks = 4;
  const auto hub = std::make_shared<ThreadHub>(kRanks);
  OnThreads(kRanks, [&](int rank) {
    ThreadTransport transport(hub, rank);
    EXPECT_EQ(transport.rank(), rank);
    EXPECT_EQ(transport.size(), kRanks);
    for (int round = 0; round < 300; ++round) {
      std::vector<std::string> all;
      ASSERT_TRUE(transport.BeginExchange(StrCat(rank, " in ", round)).ok());
      ASSERT_TRUE(transport.PollExchange(Patiently(), &all).ok());
      ASSERT_EQ(all.size(), static_cast<size_t>(kRanks));
      for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], StrCat(i, " in ", round));
    }
  });
}

TEST(ThreadTransport, IsPendingUntilTheLastHasCome) {
  const auto hub = std::make_shared<ThreadHub>(2);
  ThreadTransport first(hub, 0);
  ThreadTransport second(hub, 1);
  std::vector<std::string> all;
  ASSERT_TRUE(first.BeginExchange("").ok());
  EXPECT_TRUE(first.PollExchange(WithoutWaiting(), &all).pending());
  ASSERT_TRUE(second.BeginExchange(std::string("\0b", 2)).ok());
  ASSERT_TRUE(first.PollExchange(WithoutWaiting(), &all).ok());
  EXPECT_EQ(all, (std::vector<std::string>{"", std::string("\0b", 2)}));
}

TEST(ThreadTransport, NamesThoseWhoDoNotCome) {
  const auto hub = std::make_shared<ThreadHub>(3);
  ThreadTransport second(hub, 1);
  std::vector<std::string> all;
  ASSERT_TRUE(second.BeginExchange("here").ok());
  const Status status = second.PollExchange(Shortly(), &all);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.text().find("ranks 0 and 2"), std::string::npos) << status.text();
}

}  // namespace
}  // namespace multiverso
