#include "shard/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "support/memory_shard.h"

namespace multiverso {
namespace {

using testing::MemoryShard;
using testing::Patiently;
using testing::Shortly;
using testing::WithoutWaiting;

TEST(Shard, IsZeroBeforeTheFirstAdd) {
  const MemoryShard<float> memory(1000, 3);
  std::vector<float> out(3000, 7);
  Progress progress;
  ASSERT_TRUE(memory.For(0).Run(Request::Get(out.data()), &progress, WithoutWaiting()).ok());
  EXPECT_EQ(out, std::vector<float>(3000, 0));
}

// Any sequence of operations has the same result as on a plain array.
template <class T>
void RunRandomProgram(uint32_t seed, int64_t rows, int64_t columns) {
  const MemoryShard<T> memory(rows, columns);
  Shard ranks[2] = {memory.For(0), memory.For(1)};
  std::mt19937_64 random(seed);
  const auto count = static_cast<size_t>(rows * columns);
  std::vector<T> model(count, 0);
  const auto values = [&](size_t n) {
    std::vector<T> made(n);
    for (T& value : made) value = static_cast<T>(static_cast<int64_t>(random() % 2001) - 1000);
    return made;
  };
  for (int step = 0; step < 40; ++step) {
    Shard& shard = ranks[random() % 2];
    Progress progress;
    std::vector<int64_t> ids(random() % 40);
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
    const auto width = static_cast<size_t>(columns);
    switch (random() % 6) {
      case 0: {
        std::vector<T> out(count, 99);
        ASSERT_TRUE(shard.Run(Request::Get(out.data()), &progress, Patiently()).ok());
        ASSERT_EQ(out, model);
        break;
      }
      case 1: {
        const auto delta = values(count);
        ASSERT_TRUE(shard.Run(Request::Add(delta.data()), &progress, Patiently()).ok());
        for (size_t i = 0; i < count; ++i) model[i] += delta[i];
        break;
      }
      case 2: {
        auto delta = values(count);
        for (size_t i = 0; i < count; ++i) model[i] += delta[i];
        ASSERT_TRUE(
            shard.Run(Request::AddGet(delta.data(), delta.data()), &progress, Patiently()).ok());
        ASSERT_EQ(delta, model);
        break;
      }
      case 3: {
        const auto delta = values(ids.size() * width);
        ASSERT_TRUE(
            shard
                .Run(Request::AddRows(ids.data(), static_cast<int64_t>(ids.size()), delta.data()),
                     &progress, Patiently())
                .ok());
        for (size_t i = 0; i < delta.size(); ++i) {
          model[static_cast<size_t>(ids[i / width]) * width + i % width] += delta[i];
        }
        break;
      }
      case 4: {
        std::vector<T> out(ids.size() * width, 99);
        ASSERT_TRUE(
            shard
                .Run(Request::GetRows(ids.data(), static_cast<int64_t>(ids.size()), out.data()),
                     &progress, Patiently())
                .ok());
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i], model[static_cast<size_t>(ids[i / width]) * width + i % width]);
        }
        break;
      }
      default:
        model = values(count);
        ASSERT_TRUE(shard.Run(Request::Store(model.data()), &progress, Patiently()).ok());
    }
  }
  ASSERT_TRUE(std::equal(model.begin(), model.end(), memory.values()));
}

TEST(Shard, MatchesAPlainArray) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    RunRandomProgram<float>(seed, 1, 1);
    RunRandomProgram<float>(seed, 20001, 3);
    RunRandomProgram<double>(seed, 3, 20001);
    RunRandomProgram<int32_t>(seed, 37, 64);
    RunRandomProgram<int64_t>(seed, 40000, 1);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(Shard, AppliesItsUpdater) {
  const MemoryShard<float> memory(5, 2, UpdaterKind::kSgd);
  Shard shard = memory.For(0);
  memory.hyper()->value[kLearningRate].store(0.5);
  const std::vector<float> delta(10, 4);
  const int64_t ids[] = {4, 4};
  Progress all;
  Progress rows;
  ASSERT_TRUE(shard.Run(Request::Add(delta.data()), &all, Patiently()).ok());
  ASSERT_TRUE(shard.Run(Request::AddRows(ids, 2, delta.data()), &rows, Patiently()).ok());
  EXPECT_EQ(memory.values()[0], -2);
  EXPECT_EQ(memory.values()[8], -6);
}

TEST(Shard, AcceptsZeroRows) {
  const MemoryShard<float> memory(5, 2);
  Progress progress;
  EXPECT_TRUE(
      memory.For(0).Run(Request::GetRows(nullptr, 0, nullptr), &progress, WithoutWaiting()).ok());
  EXPECT_TRUE(
      memory.For(0).Run(Request::AddRows(nullptr, 0, nullptr), &progress, WithoutWaiting()).ok());
}

// The last of several stripes is held: the call completes the others, waits, and continues.
class HeldStripe : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 50000;

  void SetUp() override { ASSERT_TRUE(memory_.lock(held_)->TryTake(9)); }

  MemoryShard<int32_t> memory_{kRows, 1};
  int64_t held_ = memory_.layout().stripes() - 1;
  Shard shard_ = memory_.For(0);
  std::vector<int32_t> delta_ = std::vector<int32_t>(kRows, 3);
  Progress progress_;
};

TEST_F(HeldStripe, MakesAnAddPendingThatThenContinues) {
  ASSERT_TRUE(shard_.Run(Request::Add(delta_.data()), &progress_, WithoutWaiting()).pending());
  EXPECT_EQ(progress_.done, held_);
  const WaitLimit slice{Instant::max(), Clock::now() + std::chrono::milliseconds(5)};
  ASSERT_TRUE(shard_.Run(Request::Add(delta_.data()), &progress_, slice).pending());
  EXPECT_EQ(memory_.values()[0], 3);
  EXPECT_EQ(memory_.values()[kRows - 1], 0);
  memory_.lock(held_)->Leave();
  ASSERT_TRUE(shard_.Run(Request::Add(delta_.data()), &progress_, WithoutWaiting()).ok());
  EXPECT_TRUE(std::all_of(memory_.values(), memory_.values() + kRows,
                          [](int32_t value) { return value == 3; }));
}

TEST_F(HeldStripe, MakesAnAddGetInPlacePendingWithoutAddingTwice) {
  ASSERT_TRUE(
      shard_.Run(Request::AddGet(delta_.data(), delta_.data()), &progress_, WithoutWaiting())
          .pending());
  memory_.lock(held_)->Leave();
  ASSERT_TRUE(
      shard_.Run(Request::AddGet(delta_.data(), delta_.data()), &progress_, WithoutWaiting()).ok());
  EXPECT_EQ(delta_, std::vector<int32_t>(kRows, 3));
  EXPECT_TRUE(std::equal(delta_.begin(), delta_.end(), memory_.values()));
}

TEST_F(HeldStripe, MakesRowsPendingAtTheFirstHeldStripe) {
  const int64_t ids[] = {0, 0, kRows - 1, 1, kRows - 1};
  const int32_t delta[] = {1, 2, 4, 8, 16};
  ASSERT_TRUE(shard_.Run(Request::AddRows(ids, 5, delta), &progress_, WithoutWaiting()).pending());
  EXPECT_EQ(progress_.done, 2);
  memory_.lock(held_)->Leave();
  ASSERT_TRUE(shard_.Run(Request::AddRows(ids, 5, delta), &progress_, WithoutWaiting()).ok());
  EXPECT_EQ(memory_.values()[0], 3);
  EXPECT_EQ(memory_.values()[1], 8);
  EXPECT_EQ(memory_.values()[kRows - 1], 20);
  int32_t out[5] = {};
  Progress reading;
  ASSERT_TRUE(shard_.Run(Request::GetRows(ids, 5, out), &reading, WithoutWaiting()).ok());
  EXPECT_EQ(out[4], 20);
}

TEST_F(HeldStripe, TimesOutAndNamesTheHolder) {
  const Status status = shard_.Run(Request::Add(delta_.data()), &progress_, Shortly());
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.text().find("local rank 9"), std::string::npos) << status.text();
  EXPECT_NE(status.text().find("rows 49152 to 49999"), std::string::npos) << status.text();
}

TEST_F(HeldStripe, IsRecoveredFromADeadHolderWithAWarning) {
  memory_.probe.dead = 9;
  ::testing::internal::CaptureStderr();
  const Status status = shard_.Run(Request::Add(delta_.data()), &progress_, Patiently());
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_NE(log.find("rows 49152 to 49999"), std::string::npos) << log;
  EXPECT_EQ(memory_.values()[kRows - 1], 3);
  EXPECT_EQ(memory_.lock(held_)->Holder(), -1);
}

}  // namespace
}  // namespace multiverso
