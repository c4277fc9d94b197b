#include "group/peer_watch.h"

#include <gtest/gtest.h>

#include "support/rank_contexts.h"

namespace multiverso::testing {
namespace {

PeerWatch WatchOf(const RankContexts& ranks, int rank) {
  RankContext* const context = ranks[rank];
  return PeerWatch(&context->members(), context->peers(), context->state());
}

TEST(WaitLines, AreDueAfterTenSecondsAndThenEveryThirty) {
  const Instant began = Clock::now();
  WaitLines lines(began);
  EXPECT_FALSE(lines.IsDue(began + std::chrono::milliseconds(9999)));
  const Instant first = began + std::chrono::seconds(10);
  EXPECT_TRUE(lines.IsDue(first));
  lines.Postpone(first);
  EXPECT_FALSE(lines.IsDue(first + std::chrono::milliseconds(29999)));
  EXPECT_TRUE(lines.IsDue(first + std::chrono::seconds(30)));
}

TEST(PeerWatch, SaysOncePerLateRankForAllRanksOfTheNodeWhoIsLate) {
  const RankContexts ranks(AllOf(4));
  ranks[0]->memory()->recorder()->Begin(CallKind::kSave, -1, 0);
  const PeerWatch::Late late{" in barrier", "rank 0, which did not call it", 0};
  PeerWatch watch = WatchOf(ranks, 1);
  watch.Begin();
  PeerWatch other = WatchOf(ranks, 2);
  other.Begin(kStartTimeoutOption);
  ::testing::internal::CaptureStderr();
  watch.LogLate(late, watch.began() + std::chrono::minutes(30));
  watch.LogLate(late, watch.began() + std::chrono::minutes(30));
  other.LogLate(late, other.began() + std::chrono::minutes(30));
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(Contains(line, "rank 1 has waited 0.0"));
  EXPECT_TRUE(Contains(line, " s in barrier for rank 0, which did not call it (on "));
  EXPECT_TRUE(Contains(line, "; its last call: save, in it for 0.0"));
  EXPECT_TRUE(Contains(line, "; it waits for up to 1800 s, which timeout= of init sets\n"));
  EXPECT_EQ(line.find('\n'), line.size() - 1);

  ::testing::internal::CaptureStderr();
  other.LogLate({" in init", "rank 3", 3}, other.began() + kNoLimit);
  EXPECT_TRUE(Contains(::testing::internal::GetCapturedStderr(),
                       "; it waits without a limit, which start_timeout= of init sets\n"));
}

}  // namespace
}  // namespace multiverso::testing
