#include "shard/shard.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/memory_shard.h"

namespace multiverso::testing {
namespace {

// A table of several stripes, the last of which another rank holds. A call completes the other
// stripes, waits for the held stripe, and then continues.
class HeldStripe : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 50000;

  void SetUp() override { ASSERT_TRUE(memory_.lock(held_)->TryTake(9)); }
  Status Run(const Request& request, const WaitLimit& limit = WithoutWaiting()) {
    return shard_.Run(request, &progress_, limit);
  }

  MemoryShard<int32_t> memory_{kRows, 1};
  int64_t held_ = memory_.layout().stripes() - 1;
  Shard shard_ = memory_.For(0);
  std::vector<int32_t> delta_ = std::vector<int32_t>(kRows, 3);
  Progress progress_;
};

TEST_F(HeldStripe, MakesAnAddPendingThatThenContinues) {
  ASSERT_TRUE(Run(Request::Add(delta_.data())).pending());
  EXPECT_EQ(progress_.done, held_);
  const WaitLimit slice{Instant::max(), Clock::now() + std::chrono::milliseconds(5)};
  ASSERT_TRUE(Run(Request::Add(delta_.data()), slice).pending());
  EXPECT_EQ(memory_.values()[0], 3);
  EXPECT_EQ(memory_.values()[kRows - 1], 0);
  memory_.lock(held_)->Release();
  ASSERT_TRUE(Run(Request::Add(delta_.data())).ok());
  EXPECT_TRUE(std::all_of(memory_.values(), memory_.values() + kRows,
                          [](int32_t value) { return value == 3; }));
}

TEST_F(HeldStripe, MakesAnAddGetInPlacePendingWithoutAddingTwice) {
  ASSERT_TRUE(Run(Request::AddGet(delta_.data(), delta_.data())).pending());
  memory_.lock(held_)->Release();
  ASSERT_TRUE(Run(Request::AddGet(delta_.data(), delta_.data())).ok());
  EXPECT_EQ(delta_, std::vector<int32_t>(kRows, 3));
  EXPECT_TRUE(std::equal(delta_.begin(), delta_.end(), memory_.values()));
}

TEST_F(HeldStripe, MakesRowsPendingAtTheFirstHeldStripe) {
  const int64_t ids[] = {0, 0, kRows - 1, 1, kRows - 1};
  const int32_t delta[] = {1, 2, 4, 8, 16};
  ASSERT_TRUE(Run(Request::AddRows(ids, 5, delta)).pending());
  EXPECT_EQ(progress_.done, 2);
  memory_.lock(held_)->Release();
  ASSERT_TRUE(Run(Request::AddRows(ids, 5, delta)).ok());
  EXPECT_EQ(memory_.values()[0], 3);
  EXPECT_EQ(memory_.values()[1], 8);
  EXPECT_EQ(memory_.values()[kRows - 1], 20);
  int32_t out[5] = {};
  ASSERT_TRUE(Call(&shard_, Request::GetRows(ids, 5, out), WithoutWaiting()).ok());
  EXPECT_EQ(out[4], 20);
}

TEST_F(HeldStripe, TimesOutAndNamesTheHolder) {
  EXPECT_TRUE(IsError(Run(Request::Add(delta_.data()), Shortly()), Code::kTimeout, "local rank 9",
                      "rows 49152 to 49999"));
  Shard later_rows = memory_.For(0, /*first_row=*/100000);
  EXPECT_TRUE(IsError(Call(&later_rows, Request::Add(delta_.data()), Shortly()), Code::kTimeout,
                      "rows 149152 to 149999"));
}

TEST_F(HeldStripe, IsRecoveredFromADeadHolderWithAWarning) {
  memory_.probe.dead = 9;
  ::testing::internal::CaptureStderr();
  const Status status = Run(Request::Add(delta_.data()), Patiently());
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(IsOk(status));
  EXPECT_TRUE(Contains(log, "rows 49152 to 49999"));
  EXPECT_EQ(memory_.values()[kRows - 1], 3);
  EXPECT_EQ(memory_.lock(held_)->Holder(), -1);
}

}  // namespace
}  // namespace multiverso::testing
