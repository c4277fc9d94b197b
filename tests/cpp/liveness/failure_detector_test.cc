#include "liveness/failure_detector.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/limits.h"
#include "support/rank_contexts.h"

namespace multiverso::testing {
namespace {

Hello WithShortTimeout() {
  Hello hello;
  hello.peer_timeout_ms = 50;
  return hello;
}

// Waits in the collective that the rank has begun, and sends heartbeats meanwhile.
Status WaitWithHeartbeats(const RankContexts& ranks, int rank) {
  Status status = Status::Pending();
  const Instant until = Clock::now() + kPatience;
  while (status.pending() && Clock::now() < until) {
    ranks[rank]->failure_detector()->Beat();
    status = ranks[rank]->world()->Wait(WithoutWaiting());
  }
  return status;
}

TEST(FailureDetector, NeverSuspectsARankWithoutHeartbeats) {
  const RankContexts ranks(AllOf(2), 0, WithShortTimeout());
  ranks[0]->failure_detector()->Beat();
  EXPECT_EQ(ranks[0]->failure_detector()->SilentFor(1), 0);
  EXPECT_FALSE(ranks[0]->failure_detector()->IsSilent(1));
}

TEST(FailureDetector, EndsTheWaitForASuspendedRank) {
  const RankContexts ranks(AllOf(2), 0, WithShortTimeout());
  for (const int rank : {0, 1}) ranks[rank]->failure_detector()->Beat();
  ranks[0]->world()->BeginAllgather(CollectiveKind::kBarrier);
  EXPECT_TRUE(IsError(WaitWithHeartbeats(ranks, 0), Code::kTimeout, "rank 1", "no heartbeat"));
  // When rank 1 resumes, its next wait fails instead of waiting for rank 0.
  ranks[1]->failure_detector()->Beat();
  ranks[1]->world()->BeginAllgather(CollectiveKind::kBarrier);
  EXPECT_EQ(ranks[1]->world()->Wait(Patiently()).code(), Code::kState);
}

TEST(FailureDetector, ExcludesASuspendedRankIfLossesAreSurvived) {
  Hello hello = WithShortTimeout();
  hello.on_loss = static_cast<int32_t>(OnLoss::kContinue);
  const RankContexts ranks(AllOf(2), 0, hello);
  for (const int rank : {0, 1}) ranks[rank]->failure_detector()->Beat();
  ranks[0]->world()->BeginAllgather(CollectiveKind::kBarrier);
  EXPECT_TRUE(WaitWithHeartbeats(ranks, 0).ok());
  EXPECT_EQ(ranks[0]->peers()->LostRanks(), std::vector<int>{1});
  ranks[1]->world()->BeginAllgather(CollectiveKind::kBarrier);
  EXPECT_EQ(ranks[1]->world()->Wait(Patiently()).code(), Code::kState);
}

TEST(FailureDetector, SuspectsNoRankAfterItsOwnSuspension) {
  const RankContexts ranks(AllOf(2), 0, WithShortTimeout());
  for (const int rank : {0, 1}) ranks[rank]->failure_detector()->Beat();
  // Both ranks were suspended, so rank 0 must suspect nobody before or after its first heartbeat.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(ranks[0]->failure_detector()->IsSilent(1));
  ranks[0]->failure_detector()->Beat();
  EXPECT_FALSE(ranks[0]->failure_detector()->IsSilent(1));
}

}  // namespace
}  // namespace multiverso::testing
