#include "group/node_contribution.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "memory/segment.h"
#include "node/node_memory.h"
#include "support/spanning_members.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

// The contribution of node 1 (ranks 1 and 2) to collective 7 of the world.
class ContributionOfNode1 : public ::testing::Test {
 protected:
  ContributionOfNode1() : segment_(ValueOf(Segment::CreatePrivate(int64_t{4} << 20))) {
    const Membership theirs = SpanningMembers({1, 2}, 1);
    const NodeMemory memory(std::move(segment_), &theirs);
    const std::string payloads[] = {"", std::string(512, 'a')};
    for (const int rank : {1, 2}) {
      RankSlot::GroupProgress& progress = memory.slot(rank).groups[0];
      const std::string& payload = payloads[rank - 1];
      EXPECT_FALSE(PackContribution(memory, theirs, /*group=*/0, 7, &bytes_));
      progress.SlotFor(7).Write(CollectiveKind::kCreateTable, payload.data(), payload.size());
      progress.sequence.store(7);
    }
    EXPECT_TRUE(PackContribution(memory, theirs, /*group=*/0, 7, &bytes_));
  }

  Segment segment_;
  std::string bytes_;
  Membership mine_ = SpanningMembers({1, 2}, 0);
  NodeContribution contribution_;
};

TEST_F(ContributionOfNode1, IsUnpackedWithWhatWasAttached) {
  Attach("values", &bytes_);
  ASSERT_TRUE(UnpackContribution(bytes_, mine_, &contribution_));
  EXPECT_EQ(contribution_.attached, "values");
  bytes_.pop_back();
  EXPECT_FALSE(UnpackContribution(bytes_, mine_, &contribution_));
  EXPECT_FALSE(UnpackContribution(bytes_ + "se", mine_, &contribution_));
}

TEST_F(ContributionOfNode1, IsRejectedUnlessItHasTheRanksOfAnotherNode) {
  for (const auto& sizes : {std::vector<int>{1, 1}, {1, 3}, {2, 1}, {3}}) {
    EXPECT_FALSE(UnpackContribution(bytes_, SpanningMembers(sizes, 0), &contribution_));
  }
  EXPECT_FALSE(UnpackContribution(bytes_, SpanningMembers({1, 2}, 1), &contribution_));
}

TEST_F(ContributionOfNode1, IsRejectedIfAPayloadIsTooLong) {
  const uint32_t bytes = 513;
  std::memcpy(&bytes_[bytes_.size() - 512 - sizeof(bytes)], &bytes, sizeof(bytes));
  EXPECT_FALSE(UnpackContribution(bytes_ + "b", mine_, &contribution_));
}

TEST_F(ContributionOfNode1, IsNeverReadBeyondItsEnd) {
  for (size_t length = 0; length < bytes_.size(); ++length) {
    EXPECT_FALSE(UnpackContribution(bytes_.substr(0, length), mine_, &contribution_));
  }
  EXPECT_FALSE(UnpackContribution(bytes_ + "c", mine_, &contribution_));
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = bytes_;
    for (size_t c = 0; c <= random() % 4; ++c) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (!UnpackContribution(damaged, mine_, &contribution_)) continue;
    ASSERT_EQ(contribution_.ranks.size(), 2U);
    for (const auto& one : contribution_.ranks) ASSERT_LE(one.data.size(), 512U);
  }
}

}  // namespace
}  // namespace multiverso::testing
