#include "transport/receipts.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "transport/request_numbers.h"

namespace multiverso {
namespace {

using Claim = Receipt::Claim;

bool Alive(int /*local_rank*/) { return true; }
bool Dead(int /*local_rank*/) { return false; }

// Like memory that nobody has written to.
std::unique_ptr<Receipts> Empty() { return std::make_unique<Receipts>(); }

TEST(Receipt, LetsEachRequestBeCarriedOutOnce) {
  const auto receipts = Empty();
  Receipt& receipt = receipts->slot[0];
  EXPECT_EQ(receipt.Take(1, 0, false, Alive), Claim::kMine);
  receipt.Finish(1);
  EXPECT_EQ(receipt.Take(1, 1, false, Dead), Claim::kDone);
  EXPECT_EQ(receipt.Take(2, 1, false, Dead), Claim::kMine);
  receipt.Finish(2);
  EXPECT_EQ(receipt.Take(1, 0, false, Alive), Claim::kDone);
  EXPECT_EQ(receipt.Take(2, 0, false, Alive), Claim::kDone);
}

TEST(Receipt, WaitsForARankThatIsAtIt) {
  const auto receipts = Empty();
  Receipt& receipt = receipts->slot[3];
  ASSERT_EQ(receipt.Take(7, 5, false, Alive), Claim::kMine);
  EXPECT_EQ(receipt.owner(), 5);
  EXPECT_EQ(receipt.Take(7, 1, false, Alive), Claim::kInHand);
  receipt.Finish(7);
  EXPECT_EQ(receipt.Take(7, 1, false, Alive), Claim::kDone);
}

TEST(Receipt, KnowsWhatADeadRankWasInTheMiddleOf) {
  const auto receipts = Empty();
  Receipt& receipt = receipts->slot[63];
  ASSERT_EQ(receipt.Take(7, 5, false, Alive), Claim::kMine);
  EXPECT_EQ(receipt.Take(7, 1, false, Dead), Claim::kBroken);
  EXPECT_EQ(receipt.Take(7, 1, false, Dead), Claim::kBroken);
  EXPECT_EQ(receipt.Take(8, 1, false, Dead), Claim::kMine);
  EXPECT_EQ(receipt.Take(7, 5, false, Alive), Claim::kBroken);
}

TEST(Receipt, LetsBeginAnewWhatDoesNoHarmTwice) {
  const auto receipts = Empty();
  Receipt& receipt = receipts->slot[1];
  ASSERT_EQ(receipt.Take(1, 0, true, Alive), Claim::kMine);
  EXPECT_EQ(receipt.Take(1, 2, true, Alive), Claim::kInHand);
  EXPECT_EQ(receipt.Take(1, 2, true, Dead), Claim::kMine);
  EXPECT_EQ(receipt.owner(), 2);
}

TEST(Receipt, SeesWhatWasFinishedJustBeforeTheDeath) {
  const auto receipts = Empty();
  Receipt& receipt = receipts->slot[1];
  ASSERT_EQ(receipt.Take(1, 0, false, Alive), Claim::kMine);
  const auto finishes_and_dies = [&](int /*local_rank*/) {
    receipt.Finish(1);
    return false;
  };
  EXPECT_EQ(receipt.Take(1, 2, false, finishes_and_dies), Claim::kDone);
}

TEST(RequestNumbers, GivesEachSequenceASlotOfItsOwn) {
  RequestNumbers numbers(2);
  std::set<int> slots;
  for (int i = 0; i < Receipts::kSlots; ++i) slots.insert(numbers.Take(1));
  EXPECT_EQ(slots.size(), static_cast<size_t>(Receipts::kSlots));
  EXPECT_EQ(*slots.begin(), 0);
  EXPECT_EQ(*slots.rbegin(), Receipts::kSlots - 1);
  EXPECT_EQ(numbers.Take(1), -1);
  EXPECT_EQ(numbers.Take(0), 0);
  EXPECT_EQ(numbers.Next(1, 5), 1U);
  EXPECT_EQ(numbers.Next(1, 5), 2U);
  EXPECT_EQ(numbers.Next(1, 6), 1U);
  EXPECT_EQ(numbers.Next(0, 5), 1U);
  numbers.GiveBack(1, 5);
  EXPECT_EQ(numbers.Take(1), 5);
  // The numbers of a slot go on with who has it next.
  EXPECT_EQ(numbers.Next(1, 5), 3U);
}

}  // namespace
}  // namespace multiverso
