#include "liveness/failure_detector.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "base/process.h"
#include "group/collective_call.h"
#include "support/limits.h"
#include "support/processes.h"
#include "support/rank_contexts.h"

namespace multiverso::testing {
namespace {

Hello WithShortTimeout() {
  Hello hello;
  hello.options.peer_timeout = std::chrono::milliseconds(50);
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

TEST(FailureDetector, ExcludesASuspendedRankIfLossesAreSurvived) {
  Hello hello = WithShortTimeout();
  hello.options.on_loss = OnLoss::kContinue;
  const RankContexts ranks(AllOf(2), 0, hello);
  for (const int rank : {0, 1}) ranks[rank]->failure_detector()->Beat();
  ranks[0]->world()->BeginAllgather(CollectiveKind::kBarrier);
  EXPECT_TRUE(WaitWithHeartbeats(ranks, 0).ok());
  EXPECT_EQ(ranks[0]->peers()->LostRanks(), std::vector<int>{1});
  // Rank 1 is a thread of this process, which nobody ends. Its lists of ranks keep it, and each of
  // its calls fails.
  EXPECT_FALSE(ranks[1]->peers()->IsExcluded(1));
  CollectiveCall call(ranks[1], CollectiveKind::kAggregate);
  const Result<bool> entered = call.Enter(Patiently());
  EXPECT_TRUE(IsError(entered.status(), Code::kState, "rank 0 has excluded rank 1"));
  ranks[1]->world()->BeginAllgather(CollectiveKind::kBarrier);
  EXPECT_EQ(ranks[1]->world()->Wait(Patiently()).code(), Code::kState);
}

TEST(FailureDetector, FreesTheLockOfASuspendedRankIfLossesAreSurvived) {
  if (std::string(PlatformName()) != "linux") GTEST_SKIP() << "needs Linux";
  Hello hello = Surviving();
  hello.options.peer_timeout = std::chrono::milliseconds(500);
  const RankContexts ranks(AllOf(2), /*absent=*/1, hello);
  const Shared<RobustLock> lock;
  Child child([&] {
    const auto rank = ranks.Join(1);
    (void)lock->TryTake(1);
    rank->failure_detector()->Beat();
    return SleepForGood();
  });
  EXPECT_TRUE(Eventually([&] {
    ranks[0]->failure_detector()->Beat();
    const Instant until = Clock::now() + std::chrono::milliseconds(30);
    return lock->Holder() == 1 &&
           lock->Take(0, *ranks[0]->peers(), until) == RobustLock::Outcome::kRecovered;
  }));
  EXPECT_EQ(child.Wait(), -1);
  EXPECT_TRUE(Contains(ranks[0]->peers()->ExitReason(1), "so rank 0 excluded it"));
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
