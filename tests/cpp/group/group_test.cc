#include "group/group.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "support/limits.h"
#include "support/rank_contexts.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

// Waits as a rank; one thread acts as all ranks in turn, so that the order of events is fixed.
Status Wait(const RankContexts& ranks, int rank) {
  return ranks[rank]->world()->Wait(WithoutWaiting());
}
void Begin(const RankContexts& ranks, int rank, CollectiveKind kind = CollectiveKind::kBarrier) {
  ranks[rank]->world()->BeginAllgather(kind);
}

TEST(Group, GathersThePayloadsOfAllRanksRepeatedly) {
  constexpr int kRanks = 4;
  const RankContexts ranks(AllOf(kRanks));
  OnThreads(kRanks, [&](int rank) {
    Group* const world = ranks[rank]->world();
    for (int64_t round = 0; round < 2000; ++round) {
      const int64_t payload = 1000 * round + rank;
      world->BeginAllgather(CollectiveKind::kCreateTable, &payload, sizeof(payload));
      ASSERT_TRUE(IsOk(world->Wait(Patiently())));
      for (int other = 0; other < kRanks; ++other) {
        ASSERT_EQ(world->payload(other).Bytes().size(), sizeof(payload));
        ASSERT_EQ(world->payload(other).Read<int64_t>(), 1000 * round + other);
      }
    }
  });
}

TEST(Group, ReportsDifferentCallsToAllRanksAndContinues) {
  const RankContexts ranks(AllOf(3));
  Begin(ranks, 0);
  Begin(ranks, 1);
  Begin(ranks, 2, CollectiveKind::kCreateTable);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(IsError(Wait(ranks, rank), Code::kMismatch,
                        "rank 0 called barrier, rank 2 called the creation of a table"));
  }
  for (int rank = 0; rank < 3; ++rank) Begin(ranks, rank);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(Wait(ranks, rank).ok());
}

TEST(Group, PostponesACollectiveOfMembersWhileOthersAskWhetherAllLeave) {
  const RankContexts ranks(AllOf(3));
  for (int round = 0; round < 3; ++round) {
    Begin(ranks, 0, CollectiveKind::kLeaving);
    const int64_t payload = 17 + round;
    ranks[1]->world()->BeginAllgather(CollectiveKind::kBarrier, &payload, sizeof(payload));
    Begin(ranks, 2, CollectiveKind::kLeaving);
    EXPECT_TRUE(Wait(ranks, 0).ok());
    EXPECT_TRUE(Wait(ranks, 1).pending());
    EXPECT_TRUE(Wait(ranks, 2).ok());
    EXPECT_EQ(ranks[0]->world()->payload(1).kind(), CollectiveKind::kBarrier);
    Begin(ranks, 0);
    Begin(ranks, 2);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(Wait(ranks, rank).ok());
      EXPECT_EQ(ranks[rank]->world()->payload(1).Read<int64_t>(), payload);
    }
  }
  for (int rank = 0; rank < 3; ++rank) Begin(ranks, rank, CollectiveKind::kLeaving);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(Wait(ranks, rank).ok());
}

TEST(Group, EndsACollectiveThatAMemberWhoseProgramHasFailedWillNotMake) {
  const RankContexts ranks(AllOf(3));
  Begin(ranks, 0, CollectiveKind::kFailing);
  Begin(ranks, 1);
  Begin(ranks, 2, CollectiveKind::kLeaving);
  EXPECT_TRUE(Wait(ranks, 0).ok());
  EXPECT_TRUE(IsError(Wait(ranks, 1), Code::kAborted,
                      "rank 0 has failed after SIGTERM, so barrier cannot be completed"));
  EXPECT_TRUE(Wait(ranks, 2).ok());
  Begin(ranks, 0, CollectiveKind::kFailing);
  Begin(ranks, 1, CollectiveKind::kFailing);
  Begin(ranks, 2, CollectiveKind::kClosing);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(Wait(ranks, rank).ok());
}

TEST(Group, PostponesAFailureAndAMismatch) {
  const RankContexts ranks(AllOf(3));
  Begin(ranks, 0, CollectiveKind::kLeaving);
  ranks[1]->world()->BeginFailure(CollectiveKind::kBarrier, Status(Code::kMemory, "no memory"));
  Begin(ranks, 2, CollectiveKind::kSave);
  EXPECT_TRUE(Wait(ranks, 0).ok());
  EXPECT_TRUE(Wait(ranks, 1).pending());
  EXPECT_TRUE(Wait(ranks, 2).pending());
  Begin(ranks, 0);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(
        IsError(Wait(ranks, rank), Code::kMismatch, "rank 0 called barrier, rank 2 called save"));
  }
  Begin(ranks, 0, CollectiveKind::kLeaving);
  ranks[1]->world()->BeginFailure(CollectiveKind::kBarrier, Status(Code::kMemory, "no memory"));
  Begin(ranks, 2);
  EXPECT_TRUE(Wait(ranks, 0).ok());
  EXPECT_TRUE(Wait(ranks, 2).pending());
  EXPECT_TRUE(Wait(ranks, 1).pending());
  Begin(ranks, 0);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(IsError(Wait(ranks, rank), Code::kMemory, "rank 1: no memory"));
  }
}

TEST(Group, MakesTheFailureOfOneRankTheResultOfAllAndContinues) {
  const RankContexts ranks(AllOf(3));
  const Status failure = ranks[1]->peers()->About(
      2, Status(Code::kCheckpointIo, "cannot write", FileFault{"file", ENOSPC, 17}));
  Begin(ranks, 0);
  ranks[1]->world()->BeginFailure(CollectiveKind::kBarrier, failure);
  Begin(ranks, 2);
  for (int rank = 0; rank < 3; ++rank) {
    const Status result = Wait(ranks, rank);
    EXPECT_TRUE(IsError(result, Code::kCheckpointIo, "rank 1: cannot write"));
    EXPECT_TRUE(ranks[rank]->world()->IsCompleted());
    ASSERT_NE(result.peer(), nullptr);
    EXPECT_EQ(result.peer()->rank, 2);
    ASSERT_NE(result.file(), nullptr);
    EXPECT_EQ(result.file()->path, "file");
    EXPECT_EQ(result.file()->error_number, ENOSPC);
    EXPECT_EQ(result.file()->position, 17);
  }
  for (int rank = 0; rank < 3; ++rank) Begin(ranks, rank);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(Wait(ranks, rank).ok());
}

TEST(Group, NamesLateRanksToAllAtTheDeadline) {
  const RankContexts ranks(AllOf(4));
  Begin(ranks, 1);
  Begin(ranks, 3);
  const Status first = ranks[1]->world()->Wait(Shortly());
  EXPECT_TRUE(IsError(first, Code::kTimeout, "rank 1 waited", "in barrier for ranks 0 and 2"));
  // A rank that is waiting gets the same timeout. A rank that begins too late gets kAborted.
  EXPECT_TRUE(IsError(Wait(ranks, 3), Code::kTimeout, first.text()));
  Begin(ranks, 0);
  EXPECT_TRUE(IsError(Wait(ranks, 0), Code::kAborted, "rank 1 aborted the session"));
}

TEST(Group, EndsForAllWhenOneRankAborts) {
  const RankContexts ranks(AllOf(3));
  Begin(ranks, 0);
  ranks[1]->state()->Abort(Status(Code::kAborted, "KeyboardInterrupt"));
  EXPECT_TRUE(
      IsError(Wait(ranks, 0), Code::kAborted, "rank 1 aborted the session: KeyboardInterrupt"));
  // The abort also reaches the last rank to begin, which would not have to wait.
  for (const int rank : {1, 2}) {
    Begin(ranks, rank);
    EXPECT_EQ(Wait(ranks, rank).code(), Code::kAborted);
  }
}

TEST(Group, StaysCompleteAfterALaterAbort) {
  const RankContexts ranks(AllOf(2));
  Begin(ranks, 0);
  Begin(ranks, 1);
  ranks[1]->state()->Abort(Status(Code::kAborted, "later"));
  EXPECT_TRUE(Wait(ranks, 0).ok());
}

TEST(Group, IsCompleteWithARankThatBeganBeforeItLeft) {
  RankContexts ranks(AllOf(2));
  Begin(ranks, 0);
  Begin(ranks, 1);
  ranks.Drop(1);
  EXPECT_TRUE(Wait(ranks, 0).ok());
}

TEST(Group, IsNeverCompleteWithoutALostRankHoweverOftenOthersTry) {
  RankContexts ranks(AllOf(3));
  for (int round = 0; round < 2; ++round) {
    for (int rank = 0; rank < 3; ++rank) Begin(ranks, rank);
    for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(Wait(ranks, rank).ok());
  }
  ranks.Drop(2);
  for (const int rank : {0, 0, 0, 0, 1, 1, 1, 1}) {
    Begin(ranks, rank);
    EXPECT_EQ(Wait(ranks, rank).code(), Code::kPeerLost);
  }
}

TEST(Group, IsCompleteWhenTheLastRankDiesBeforeItAnnouncesThat) {
  const RankContexts ranks(AllOf(2));
  Begin(ranks, 0);
  // Rank 1 writes its slot and its sequence, and dies before the rest of its announcement.
  auto& slot = ranks[1]->memory()->slot(1).groups[0];
  slot.SlotFor(1).Write(CollectiveKind::kBarrier, nullptr, 0);
  slot.sequence.store(1);
  EXPECT_TRUE(Wait(ranks, 0).ok());
}

TEST(Group, ContinuesWithoutARankThatLeftIfLossesAreSurvived) {
  const RankContexts ranks(AllOf(3), 0, Surviving());
  Begin(ranks, 0);
  Begin(ranks, 1);
  EXPECT_TRUE(Wait(ranks, 0).pending());
  ranks[2]->state()->Leave("lost");
  EXPECT_TRUE(Wait(ranks, 0).ok());
  EXPECT_TRUE(Wait(ranks, 1).ok());
  EXPECT_EQ(ranks[0]->world()->participants(), (std::vector<int>{0, 1}));
  EXPECT_EQ(ranks[1]->peers()->LostRanks(), std::vector<int>{2});
  // In later collectives, the last participant to begin completes the collective without rank 2.
  for (int round = 0; round < 3; ++round) {
    Begin(ranks, 1);
    EXPECT_TRUE(Wait(ranks, 1).pending());
    Begin(ranks, 0);
    EXPECT_TRUE(Wait(ranks, 0).ok());
    EXPECT_TRUE(Wait(ranks, 1).ok());
  }
}

TEST(Group, CountsARankThatBeganAndThenLeft) {
  const RankContexts ranks(AllOf(3), 0, Surviving());
  Begin(ranks, 0);
  ranks[0]->state()->Leave("lost");
  Begin(ranks, 1);
  Begin(ranks, 2);
  for (const int rank : {1, 2}) {
    EXPECT_TRUE(Wait(ranks, rank).ok());
    EXPECT_EQ(ranks[rank]->world()->participants(), (std::vector<int>{0, 1, 2}));
  }
  Begin(ranks, 2);
  Begin(ranks, 1);
  EXPECT_TRUE(Wait(ranks, 1).ok());
  EXPECT_EQ(ranks[1]->world()->participants(), (std::vector<int>{1, 2}));
  EXPECT_EQ(ranks[1]->peers()->CurrentMaster(), 1);
}

}  // namespace
}  // namespace multiverso::testing
