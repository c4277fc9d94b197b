#include "group/muster.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "group/rank_context.h"
#include "support/limits.h"
#include "support/node_groups.h"

namespace multiverso {
namespace {

using testing::AllOf;
using testing::NodeGroups;
using testing::Surviving;
using testing::WithoutWaiting;

constexpr size_t kBytes = ExchangeSlot::kMaxBytes;

// What the only rank brings to a meeting: bytes of one value, which those of the next 250 have not.
std::string BroughtTo(uint64_t meeting) {
  return std::string(kBytes, static_cast<char>(meeting % 251));
}

void ReachSyncPoint(uint64_t meeting, RankContext* group) {
  const std::string brought = BroughtTo(meeting);
  group->world()->BeginAllgather(CollectiveKind::kBarrier, brought.data(),
                                 static_cast<int64_t>(brought.size()));
  ASSERT_TRUE(group->world()->Wait(WithoutWaiting()).ok());
}

bool IsKnown(const RankContext& group, uint64_t meeting) {
  std::string packed;
  return PackMuster(group, 0, meeting, &packed);
}

TEST(PackMuster, TellsOfAMeetingUntilTheNextButOne) {
  const NodeGroups groups(AllOf(1), /*outside=*/0, Surviving());
  const RankContext& group = *groups[0];
  EXPECT_FALSE(IsKnown(group, 1));
  ReachSyncPoint(1, groups[0]);
  EXPECT_TRUE(IsKnown(group, 1));
  ReachSyncPoint(2, groups[0]);
  EXPECT_TRUE(IsKnown(group, 1));
  EXPECT_TRUE(IsKnown(group, 2));
  EXPECT_FALSE(IsKnown(group, 3));
  ReachSyncPoint(3, groups[0]);
  EXPECT_FALSE(IsKnown(group, 1));
  EXPECT_TRUE(IsKnown(group, 2));
  EXPECT_TRUE(IsKnown(group, 3));
}

TEST(PackMuster, TellsNothingThatIsBeingOverwritten) {
  const NodeGroups groups(AllOf(1), /*outside=*/0, Surviving());
  ReachSyncPoint(1, groups[0]);
  ReachSyncPoint(2, groups[0]);
  // As far as a rank gets that is on its way to the third.
  groups[0]->memory()->slot(0).circle[0].SlotFor(3).Write(3, CollectiveKind::kBarrier, "c", 1);
  EXPECT_FALSE(IsKnown(*groups[0], 1));
  EXPECT_TRUE(IsKnown(*groups[0], 2));
}

TEST(PackMuster, TellsWhatWasBroughtWhileTheRankGoesOn) {
  constexpr uint64_t kMeetings = 100'000;
  const NodeGroups groups(AllOf(1), /*outside=*/0, Surviving());
  const std::atomic<uint64_t>& arrivals = groups[0]->memory()->slot(0).circle[0].arrivals;
  std::thread comes([&] {
    for (uint64_t meeting = 1; meeting <= kMeetings; ++meeting) ReachSyncPoint(meeting, groups[0]);
  });
  uint64_t told = 0;
  uint64_t wrong = 0;
  for (uint64_t last = 0; last < kMeetings;) {
    last = arrivals.load(std::memory_order_acquire);
    for (uint64_t meeting = last < 2 ? 1 : last - 1; meeting <= last; ++meeting) {
      std::string packed;
      if (!PackMuster(*groups[0], 0, meeting, &packed)) continue;
      ++told;
      // After the headers.
      if (packed.size() < kBytes || packed.substr(packed.size() - kBytes) != BroughtTo(meeting)) {
        ++wrong;
      }
    }
  }
  comes.join();
  // The last two at least.
  EXPECT_GE(told, 2U);
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace multiverso
