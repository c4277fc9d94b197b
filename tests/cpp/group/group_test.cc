#include "group/group.h"

#include <gtest/gtest.h>

#include "support/limits.h"
#include "support/node_groups.h"
#include "support/threads.h"

namespace multiverso {
namespace {

using testing::AllOf;
using testing::NodeGroups;
using testing::OnThreads;
using testing::Patiently;
using testing::Shortly;
using testing::WithoutWaiting;

// One thread plays all ranks in turn, so that what is tested happens in a known order.
Status Meet(const NodeGroups& groups, int rank) {
  return groups[rank]->world()->Wait(WithoutWaiting());
}
void Arrive(const NodeGroups& groups, int rank, CollectiveKind kind = CollectiveKind::kBarrier) {
  groups[rank]->world()->BeginAllgather(kind);
}

bool Contains(const Status& status, const std::string& part) {
  return status.text().find(part) != std::string::npos;
}

TEST(Group, IsPendingUntilTheLastHasArrived) {
  const NodeGroups groups(AllOf(3));
  for (int round = 0; round < 5; ++round) {
    Arrive(groups, 0);
    EXPECT_TRUE(Meet(groups, 0).pending());
    Arrive(groups, 2);
    EXPECT_TRUE(Meet(groups, 0).pending());
    EXPECT_TRUE(Meet(groups, 2).pending());
    Arrive(groups, 1);
    for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(Meet(groups, rank).ok());
  }
}

TEST(Group, OfOneMeetsAtOnce) {
  const NodeGroups groups(AllOf(1));
  Arrive(groups, 0);
  EXPECT_TRUE(Meet(groups, 0).ok());
}

TEST(Group, ShowsEverybodyWhatEverybodyBroughtRoundAfterRound) {
  constexpr int kRanks = 4;
  const NodeGroups groups(AllOf(kRanks));
  OnThreads(kRanks, [&](int rank) {
    Group* const circle = groups[rank]->world();
    for (int64_t round = 0; round < 2000; ++round) {
      const int64_t brought = 1000 * round + rank;
      circle->BeginAllgather(CollectiveKind::kCreateTable, &brought, sizeof(brought));
      const Status status = circle->Wait(Patiently());
      ASSERT_TRUE(status.ok()) << status.text();
      for (int other = 0; other < kRanks; ++other) {
        ASSERT_EQ(circle->payload(other).Bytes().size(), sizeof(brought));
        ASSERT_EQ(circle->payload(other).Read<int64_t>(), 1000 * round + other);
      }
    }
  });
}

TEST(Group, TellsEverybodyTheSameOfDifferentCallsAndGoesOn) {
  const NodeGroups groups(AllOf(3));
  Arrive(groups, 0);
  Arrive(groups, 1);
  Arrive(groups, 2, CollectiveKind::kCreateTable);
  for (int rank = 0; rank < 3; ++rank) {
    const Status status = Meet(groups, rank);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(Contains(status, "rank 0 called barrier, rank 2 called the creation of a table"))
        << status.text();
  }
  for (int rank = 0; rank < 3; ++rank) Arrive(groups, rank);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(Meet(groups, rank).ok());
}

TEST(Group, NamesTheLateToAllAtTheDeadline) {
  const NodeGroups groups(AllOf(4));
  Arrive(groups, 1);
  Arrive(groups, 3);
  const Status first = groups[1]->world()->Wait(Shortly());
  EXPECT_EQ(first.code(), Code::kTimeout);
  EXPECT_TRUE(Contains(first, "rank 1 waited")) << first.text();
  EXPECT_TRUE(Contains(first, "in barrier for ranks 0 and 2")) << first.text();
  // Who was waiting for the same is told the same; who comes too late is told that it is.
  const Status waiting = Meet(groups, 3);
  EXPECT_EQ(waiting.code(), Code::kTimeout);
  EXPECT_EQ(waiting.text(), first.text());
  Arrive(groups, 0);
  const Status late = Meet(groups, 0);
  EXPECT_EQ(late.code(), Code::kAborted);
  EXPECT_TRUE(Contains(late, "rank 1 gave the session up")) << late.text();
}

TEST(Group, EndsForAllWhenOneRankGivesUp) {
  const NodeGroups groups(AllOf(3));
  Arrive(groups, 0);
  groups[1]->state()->Abort(Status(Code::kAborted, "KeyboardInterrupt"));
  const Status waiting = Meet(groups, 0);
  EXPECT_EQ(waiting.code(), Code::kAborted);
  EXPECT_TRUE(Contains(waiting, "rank 1 gave the session up: KeyboardInterrupt"));
  // Also for the last to arrive, who would have nobody to wait for.
  Arrive(groups, 1);
  EXPECT_EQ(Meet(groups, 1).code(), Code::kAborted);
  Arrive(groups, 2);
  EXPECT_EQ(Meet(groups, 2).code(), Code::kAborted);
}

TEST(Group, ThatWasCompleteBeforeARankGaveUpIsComplete) {
  const NodeGroups groups(AllOf(2));
  Arrive(groups, 0);
  Arrive(groups, 1);
  groups[1]->state()->Abort(Status(Code::kAborted, "later"));
  EXPECT_TRUE(Meet(groups, 0).ok());
}

TEST(Group, NamesARankThatHasLeftAndWhy) {
  const NodeGroups groups(AllOf(3));
  Arrive(groups, 0);
  groups[1]->state()->Leave("sys.exit(3) in train.py");
  const Status status = Meet(groups, 0);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_TRUE(Contains(status, "rank 1 left (sys.exit(3) in train.py)")) << status.text();
  EXPECT_TRUE(Contains(status, "rank 0 waited for it in barrier")) << status.text();
}

TEST(Group, IsCompleteWithARankThatArrivedBeforeItLeft) {
  NodeGroups groups(AllOf(2));
  Arrive(groups, 0);
  Arrive(groups, 1);
  groups.Drop(1);
  EXPECT_TRUE(Meet(groups, 0).ok());
}

TEST(Group, IsNeverCompleteWithoutALostRankHoweverOftenTheOthersTry) {
  NodeGroups groups(AllOf(3));
  for (int round = 0; round < 2; ++round) {
    for (int rank = 0; rank < 3; ++rank) Arrive(groups, rank);
    for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(Meet(groups, rank).ok());
  }
  groups.Drop(2);
  for (int attempt = 0; attempt < 4; ++attempt) {
    Arrive(groups, 0);
    EXPECT_EQ(Meet(groups, 0).code(), Code::kPeerLost);
  }
  for (int attempt = 0; attempt < 4; ++attempt) {
    Arrive(groups, 1);
    EXPECT_EQ(Meet(groups, 1).code(), Code::kPeerLost);
  }
}

TEST(Group, IsCompleteWhenTheLastToArriveDiesBeforeItCanSaySo) {
  const NodeGroups groups(AllOf(2));
  Arrive(groups, 0);
  // All that rank 1 came to do.
  auto& slot = groups[1]->memory()->slot(1).circle[0];
  slot.SlotFor(1).Write(1, CollectiveKind::kBarrier, nullptr, 0);
  slot.arrivals.store(1);
  EXPECT_TRUE(Meet(groups, 0).ok());
}

TEST(Group, OfWorkersMeetsWithoutTheServers) {
  const NodeGroups groups({Role::kServer, Role::kAll, Role::kWorker, Role::kServer});
  for (int rank : {1, 2}) {
    EXPECT_EQ(groups[rank]->workers()->members(), (std::vector<int>{1, 2}));
    groups[rank]->workers()->BeginAllgather(CollectiveKind::kCollectiveGet);
  }
  for (int rank : {1, 2}) {
    EXPECT_TRUE(groups[rank]->workers()->Wait(WithoutWaiting()).ok());
    Arrive(groups, rank);
    EXPECT_TRUE(Meet(groups, rank).pending());
  }
}

TEST(Group, OfWorkersIsTheOneOfEverybodyWhenAllAreWorkers) {
  const NodeGroups groups({Role::kWorker, Role::kAll});
  EXPECT_EQ(groups[0]->workers(), groups[0]->world());
}

TEST(Group, OfWorkersAndOfEverybodyDoNotDisturbEachOther) {
  const NodeGroups groups({Role::kAll, Role::kServer, Role::kWorker});
  OnThreads(3, [&](int rank) {
    for (int round = 0; round < 500; ++round) {
      if (rank != 1) {
        groups[rank]->workers()->BeginAllgather(CollectiveKind::kCollectiveGet);
        ASSERT_TRUE(groups[rank]->workers()->Wait(Patiently()).ok());
      }
      groups[rank]->world()->BeginAllgather(CollectiveKind::kBarrier);
      ASSERT_TRUE(groups[rank]->world()->Wait(Patiently()).ok());
    }
  });
}

TEST(Group, GoesOnWithoutARankThatHasLeftIfTheSessionDoes) {
  const NodeGroups groups(AllOf(3), 0, testing::Surviving());
  Arrive(groups, 0);
  Arrive(groups, 1);
  EXPECT_TRUE(Meet(groups, 0).pending());
  groups[2]->state()->Leave("lost");
  EXPECT_TRUE(Meet(groups, 0).ok());
  EXPECT_TRUE(Meet(groups, 1).ok());
  EXPECT_EQ(groups[0]->world()->participants(), (std::vector<int>{0, 1}));
  EXPECT_EQ(groups[1]->peers()->LostRanks(), std::vector<int>{2});
  // And from then on at once: the last to come knows that it is.
  for (int round = 0; round < 3; ++round) {
    Arrive(groups, 1);
    EXPECT_TRUE(Meet(groups, 1).pending());
    Arrive(groups, 0);
    EXPECT_TRUE(Meet(groups, 0).ok());
    EXPECT_TRUE(Meet(groups, 1).ok());
  }
}

TEST(Group, CountsARankThatCameAndWentThen) {
  const NodeGroups groups(AllOf(3), 0, testing::Surviving());
  const int gone = 0;
  Arrive(groups, gone);
  groups[gone]->state()->Leave("lost");
  Arrive(groups, 1);
  Arrive(groups, 2);
  for (const int rank : {1, 2}) {
    EXPECT_TRUE(Meet(groups, rank).ok());
    EXPECT_EQ(groups[rank]->world()->participants(), (std::vector<int>{0, 1, 2}));
  }
  Arrive(groups, 2);
  Arrive(groups, 1);
  EXPECT_TRUE(Meet(groups, 1).ok());
  EXPECT_EQ(groups[1]->world()->participants(), (std::vector<int>{1, 2}));
  EXPECT_EQ(groups[1]->peers()->CurrentMaster(), 1);
}

TEST(Group, StillFailsForARankThatHasLeftIfTheSessionDoes) {
  const NodeGroups groups(AllOf(2));
  groups[1]->state()->Leave("lost");
  Arrive(groups, 0);
  EXPECT_EQ(Meet(groups, 0).code(), Code::kPeerLost);
  EXPECT_TRUE(groups[0]->peers()->LostRanks().empty());
}

}  // namespace
}  // namespace multiverso
