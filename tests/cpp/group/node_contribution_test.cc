#include "group/node_contribution.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "support/limits.h"
#include "support/rank_contexts.h"
#include "support/spanning_members.h"

namespace multiverso::testing {
namespace {

constexpr size_t kBytes = ExchangeSlot::kMaxBytes;

// Returns the rank's payload: bytes of one value, which differs from that of the next 250 payloads.
std::string PayloadOf(uint64_t sequence) {
  return std::string(kBytes, static_cast<char>(sequence % 251));
}

void Barrier(uint64_t sequence, RankContext* rank) {
  const std::string payload = PayloadOf(sequence);
  rank->world()->BeginAllgather(CollectiveKind::kBarrier, payload.data(),
                                static_cast<int64_t>(payload.size()));
  ASSERT_TRUE(rank->world()->Wait(WithoutWaiting()).ok());
}

bool Pack(const RankContext& rank, uint64_t sequence, std::string* bytes) {
  return PackContribution(*rank.memory(), rank.members(), /*group=*/0, sequence, bytes);
}

bool CanPack(const RankContext& rank, uint64_t sequence) {
  std::string bytes;
  return Pack(rank, sequence, &bytes);
}

TEST(PackContribution, RejectsAPayloadThatIsBeingOverwritten) {
  const RankContexts ranks(AllOf(1));
  Barrier(1, ranks[0]);
  Barrier(2, ranks[0]);
  // A rank that begins its third collective first overwrites the payload of the first one.
  ranks[0]->memory()->slot(0).groups[0].SlotFor(3).Write(3, CollectiveKind::kBarrier, "c", 1);
  EXPECT_FALSE(CanPack(*ranks[0], 1));
  EXPECT_TRUE(CanPack(*ranks[0], 2));
}

TEST(PackContribution, IsConsistentWhileTheRankContinues) {
  constexpr uint64_t kCollectives = 100'000;
  const RankContexts ranks(AllOf(1));
  const std::atomic<uint64_t>& sequence = ranks[0]->memory()->slot(0).groups[0].sequence;
  std::thread writer([&] {
    for (uint64_t number = 1; number <= kCollectives; ++number) Barrier(number, ranks[0]);
  });
  uint64_t num_packed = 0;
  uint64_t num_wrong = 0;
  for (uint64_t last = 0; last < kCollectives;) {
    last = sequence.load(std::memory_order_acquire);
    for (uint64_t number = last < 2 ? 1 : last - 1; number <= last; ++number) {
      std::string bytes;
      if (!Pack(*ranks[0], number, &bytes)) continue;
      ++num_packed;
      // The payload is at the end of the bytes, after the headers.
      const bool is_right =
          bytes.size() >= kBytes && bytes.substr(bytes.size() - kBytes) == PayloadOf(number);
      num_wrong += is_right ? 0 : 1;
    }
  }
  writer.join();
  // The last two contributions are always known, because no later one overwrites them.
  EXPECT_GE(num_packed, 2U);
  EXPECT_EQ(num_wrong, 0U);
}

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
      progress.SlotFor(7).Write(7, CollectiveKind::kCreateTable, payload.data(), payload.size());
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
