#include "node/request_log.h"

#include <gtest/gtest.h>

#include <set>

#include "node/sequence_numbers.h"

namespace multiverso {
namespace {

using Claim = RequestRecord::Claim;

bool Alive(int /*local_rank*/) { return true; }
bool Dead(int /*local_rank*/) { return false; }
int64_t AtTheBeginning(int /*local_rank*/) { return 0; }

TEST(RequestRecord, GrantsEachRequestOnce) {
  RequestRecord record{};
  EXPECT_EQ(record.Take(1, 0, Alive, AtTheBeginning), Claim::kMine);
  record.Finish(1);
  EXPECT_EQ(record.Take(1, 1, Dead, AtTheBeginning), Claim::kDone);
  EXPECT_EQ(record.Take(2, 1, Dead, AtTheBeginning), Claim::kMine);
  record.Finish(2);
  EXPECT_EQ(record.Take(1, 0, Alive, AtTheBeginning), Claim::kDone);
  EXPECT_EQ(record.Take(2, 0, Alive, AtTheBeginning), Claim::kDone);
}

TEST(RequestRecord, KeepsTheResultOfTheRequestFinishedLast) {
  RequestRecord record{};
  ASSERT_EQ(record.Take(1, 0, Alive, AtTheBeginning), Claim::kMine);
  record.Finish(1, 70);
  ASSERT_EQ(record.Take(1, 1, Dead, AtTheBeginning), Claim::kDone);
  EXPECT_EQ(record.result(), 70U);
}

TEST(RequestRecord, IsInHandWhileALiveRankExecutesIt) {
  RequestRecord record{};
  ASSERT_EQ(record.Take(7, 5, Alive, AtTheBeginning), Claim::kMine);
  EXPECT_EQ(record.owner(), 5);
  EXPECT_EQ(record.Take(7, 1, Alive, AtTheBeginning), Claim::kInHand);
  record.Finish(7);
  EXPECT_EQ(record.Take(7, 1, Alive, AtTheBeginning), Claim::kDone);
}

TEST(RequestRecord, IsContinuedIfItsRankDied) {
  RequestRecord record{};
  ASSERT_EQ(record.Take(7, 5, Alive, AtTheBeginning), Claim::kMine);
  EXPECT_EQ(record.PositionOf(7), 0);
  record.SetPosition(7, 30);
  const auto at_forty = [](int owner) {
    EXPECT_EQ(owner, 5);
    return int64_t{40};
  };
  EXPECT_EQ(record.Take(7, 1, Dead, at_forty), Claim::kMine);
  EXPECT_EQ(record.PositionOf(7), 40);
  EXPECT_EQ(record.owner(), 1);
  // This owner dies before it makes a step.
  EXPECT_EQ(record.Take(7, 2, Dead, AtTheBeginning), Claim::kMine);
  EXPECT_EQ(record.PositionOf(7), 40);
  record.Finish(7);
  EXPECT_EQ(record.Take(8, 1, Dead, AtTheBeginning), Claim::kMine);
  EXPECT_EQ(record.PositionOf(8), 0);
}

TEST(RequestRecord, KeepsThePositionOfTheLargestNumber) {
  RequestRecord record{};
  constexpr uint64_t kLast = RequestRecord::kMaxNumber;
  ASSERT_EQ(record.Take(kLast, 5, Alive, AtTheBeginning), Claim::kMine);
  record.SetPosition(kLast, 30);
  EXPECT_EQ(record.PositionOf(kLast), 30);
  EXPECT_EQ(record.owner(), 5);
}

TEST(RequestRecord, IsBrokenIfALaterOneHasBegun) {
  RequestRecord record{};
  ASSERT_EQ(record.Take(7, 5, Alive, AtTheBeginning), Claim::kMine);
  ASSERT_EQ(record.Take(8, 5, Alive, AtTheBeginning), Claim::kMine);
  EXPECT_EQ(record.Take(7, 1, Dead, AtTheBeginning), Claim::kBroken);
}

TEST(RequestRecord, SeesARequestFinishedJustBeforeTheDeath) {
  RequestRecord record{};
  ASSERT_EQ(record.Take(1, 0, Alive, AtTheBeginning), Claim::kMine);
  const auto finishes_and_dies = [&](int /*local_rank*/) {
    record.Finish(1);
    return false;
  };
  EXPECT_EQ(record.Take(1, 2, finishes_and_dies, AtTheBeginning), Claim::kDone);
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
