#include "node/request_log.h"

#include <gtest/gtest.h>

#include <set>

#include "node/sequence_numbers.h"

namespace multiverso {
namespace {

using Claim = RequestRecord::Claim;

bool Alive(int /*local_rank*/) { return true; }
bool Dead(int /*local_rank*/) { return false; }

TEST(RequestRecord, GrantsEachRequestOnce) {
  RequestRecord record{};
  EXPECT_EQ(record.Take(1, 0, false, Alive), Claim::kMine);
  record.Finish(1);
  EXPECT_EQ(record.Take(1, 1, false, Dead), Claim::kDone);
  EXPECT_EQ(record.Take(2, 1, false, Dead), Claim::kMine);
  record.Finish(2);
  EXPECT_EQ(record.Take(1, 0, false, Alive), Claim::kDone);
  EXPECT_EQ(record.Take(2, 0, false, Alive), Claim::kDone);
}

TEST(RequestRecord, KeepsTheResultOfTheRequestFinishedLast) {
  RequestRecord record{};
  ASSERT_EQ(record.Take(1, 0, false, Alive), Claim::kMine);
  record.Finish(1, 70);
  ASSERT_EQ(record.Take(1, 1, false, Dead), Claim::kDone);
  EXPECT_EQ(record.result(), 70U);
}

TEST(RequestRecord, IsInHandWhileALiveRankExecutesIt) {
  RequestRecord record{};
  ASSERT_EQ(record.Take(7, 5, false, Alive), Claim::kMine);
  EXPECT_EQ(record.owner(), 5);
  EXPECT_EQ(record.Take(7, 1, false, Alive), Claim::kInHand);
  record.Finish(7);
  EXPECT_EQ(record.Take(7, 1, false, Alive), Claim::kDone);
}

TEST(RequestRecord, IsBrokenIfItsRankDied) {
  RequestRecord record{};
  ASSERT_EQ(record.Take(7, 5, false, Alive), Claim::kMine);
  EXPECT_EQ(record.Take(7, 1, false, Dead), Claim::kBroken);
  EXPECT_EQ(record.Take(7, 1, false, Dead), Claim::kBroken);
  EXPECT_EQ(record.Take(8, 1, false, Dead), Claim::kMine);
  EXPECT_EQ(record.Take(7, 5, false, Alive), Claim::kBroken);
}

TEST(RequestRecord, RepeatsIdempotentRequests) {
  RequestRecord record{};
  ASSERT_EQ(record.Take(1, 0, true, Alive), Claim::kMine);
  EXPECT_EQ(record.Take(1, 2, true, Alive), Claim::kInHand);
  EXPECT_EQ(record.Take(1, 2, true, Dead), Claim::kMine);
  EXPECT_EQ(record.owner(), 2);
}

TEST(RequestRecord, SeesARequestFinishedJustBeforeTheDeath) {
  RequestRecord record{};
  ASSERT_EQ(record.Take(1, 0, false, Alive), Claim::kMine);
  const auto finishes_and_dies = [&](int /*local_rank*/) {
    record.Finish(1);
    return false;
  };
  EXPECT_EQ(record.Take(1, 2, false, finishes_and_dies), Claim::kDone);
}

TEST(SequenceNumbers, GivesEachSequenceItsOwnSlot) {
  SequenceNumbers numbers(2);
  std::set<int> slots;
  for (int i = 0; i < RequestLog::kSlots; ++i) slots.insert(numbers.Take(1));
  EXPECT_EQ(slots.size(), static_cast<size_t>(RequestLog::kSlots));
  EXPECT_EQ(*slots.begin(), 0);
  EXPECT_EQ(*slots.rbegin(), RequestLog::kSlots - 1);
  EXPECT_EQ(numbers.Take(1), -1);
  EXPECT_EQ(numbers.Take(0), 0);
  EXPECT_EQ(numbers.Next(1, 5), 1U);
  EXPECT_EQ(numbers.Next(1, 5), 2U);
  EXPECT_EQ(numbers.Next(1, 6), 1U);
  EXPECT_EQ(numbers.Next(0, 5), 1U);
  numbers.GiveBack(1, 5);
  EXPECT_EQ(numbers.Take(1), 5);
  // The next owner of a slot continues its numbers, so that no number occurs twice.
  EXPECT_EQ(numbers.Next(1, 5), 3U);
}

}  // namespace
}  // namespace multiverso
