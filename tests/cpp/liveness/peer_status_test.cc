#include "liveness/peer_status.h"

#include <gtest/gtest.h>

#include "support/rank_contexts.h"

namespace multiverso::testing {
namespace {

TEST(PeerStatus, ExcludesRanksOnlyIfLossesAreSurvived) {
  for (const bool survives : {false, true}) {
    RankContexts ranks(AllOf(3), /*absent=*/0, survives ? Surviving() : Hello());
    ranks.Drop(0);
    const PeerStatus& peers = *ranks[1]->peers();
    EXPECT_EQ(peers.ExitReason(0), "left (left without calling shutdown)");
    EXPECT_EQ(peers.IsExcluded(0), survives);
    EXPECT_EQ(peers.LostRanks(), survives ? std::vector<int>{0} : std::vector<int>());
    EXPECT_EQ(peers.CurrentMaster(), survives ? 1 : 0);
    EXPECT_EQ(peers.MasterOf({2}), 2);
  }
}

TEST(PeerStatus, KeepsTheFirstReportAboutARankOfAnotherNode) {
  const RankContexts ranks(AllOf(2), /*absent=*/1);
  const PeerStatus& peers = *ranks[0]->peers();
  peers.RecordExit(1, RankSlot::kLeft, "first", {3, 2, 0});
  peers.RecordExit(1, RankSlot::kDied, "second", {9, 9, 9});
  EXPECT_EQ(peers.ExitReason(1), "left (first)");
  EXPECT_TRUE(peers.HasRecordedLoss());
  EXPECT_EQ(ranks[0]->memory()->slot(1).groups[0].sequence.load(), 3U);
  EXPECT_EQ(ranks[0]->memory()->slot(1).groups[1].sequence.load(), 2U);
}

TEST(PeerStatus, KnowsTheLatestCollectiveOfARankOfAnotherNode) {
  const RankContexts ranks(AllOf(2), /*absent=*/1);
  const PeerStatus& peers = *ranks[0]->peers();
  RankSlot& slot = ranks[0]->memory()->slot(1);
  slot.groups[0].SlotFor(4).Write(FailureOf(CollectiveKind::kSave), nullptr, 0);
  peers.RecordWaiting(1, /*group=*/0, CollectiveKind::kSave, {4, 2, 0});
  peers.RecordWaiting(1, /*group=*/0, CollectiveKind::kBarrier, {3, 1, 0});
  EXPECT_EQ(slot.groups[0].sequence.load(), 4U);
  EXPECT_TRUE(slot.groups[0].SlotFor(4).is_failure());
  EXPECT_EQ(slot.groups[1].sequence.load(), 2U);
  EXPECT_STREQ(ranks[0]->peers()->CollectiveAwaitedBy(1), "save");
}

}  // namespace
}  // namespace multiverso::testing
