#include "shard/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "support/memory_shard.h"

namespace multiverso::testing {
namespace {

// Returns a request for a random rectangle, and the elements of the rectangle in their order.
std::pair<Request, std::vector<size_t>> RandomPart(RequestKind kind, int64_t rows, int64_t columns,
                                                   std::mt19937_64* random) {
  const auto draw = [&](int64_t end) {
    return static_cast<int64_t>((*random)() % static_cast<uint64_t>(end));
  };
  const int64_t row = draw(rows);
  const int64_t column = draw(columns);
  const int64_t num_row = 1 + draw(rows - row);
  const int64_t width = 1 + draw(columns - column);
  Request request;
  request.kind = kind;
  request.first = row * columns + column;
  request.count = num_row * width;
  if (width < columns && num_row > 1) request.width = width;
  std::vector<size_t> elements;
  for (int64_t i = 0; i < request.count; ++i) {
    elements.push_back(static_cast<size_t>((row + i / width) * columns + column + i % width));
  }
  return {request, elements};
}

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
    std::vector<int64_t> ids(random() % 40);
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
    const auto width = static_cast<size_t>(columns);
    switch (random() % 9) {
      case 0: {
        std::vector<T> out(count, 99);
        ASSERT_TRUE(Call(&shard, Request::Get(out.data())).ok());
        ASSERT_EQ(out, model);
        break;
      }
      case 1: {
        const auto delta = values(count);
        ASSERT_TRUE(Call(&shard, Request::Add(delta.data())).ok());
        for (size_t i = 0; i < count; ++i) model[i] += delta[i];
        break;
      }
      case 2: {
        auto delta = values(count);
        for (size_t i = 0; i < count; ++i) model[i] += delta[i];
        ASSERT_TRUE(Call(&shard, Request::AddGet(delta.data(), delta.data())).ok());
        ASSERT_EQ(delta, model);
        break;
      }
      case 3: {
        const auto delta = values(ids.size() * width);
        ASSERT_TRUE(Call(&shard, AddRowsOf(ids, delta)).ok());
        for (size_t i = 0; i < delta.size(); ++i) {
          model[static_cast<size_t>(ids[i / width]) * width + i % width] += delta[i];
        }
        break;
      }
      case 4: {
        std::vector<T> out(ids.size() * width, 99);
        ASSERT_TRUE(Call(&shard, GetRowsOf(ids, &out)).ok());
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i], model[static_cast<size_t>(ids[i / width]) * width + i % width]);
        }
        break;
      }
      case 5: {
        auto [request, elements] = RandomPart(RequestKind::kAdd, rows, columns, &random);
        const auto delta = values(elements.size());
        request.delta = delta.data();
        ASSERT_TRUE(Call(&shard, request).ok());
        for (size_t i = 0; i < delta.size(); ++i) model[elements[i]] += delta[i];
        break;
      }
      case 6: {
        auto [request, elements] = RandomPart(RequestKind::kGet, rows, columns, &random);
        std::vector<T> out(elements.size(), 99);
        request.out = out.data();
        ASSERT_TRUE(Call(&shard, request).ok());
        for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], model[elements[i]]);
        break;
      }
      case 7: {
        const bool adds = random() % 2 == 0;
        const bool is_expected = random() % 2 == 0;
        const auto element = static_cast<size_t>(random() % count);
        const T operand = values(1)[0];
        const T expected = is_expected ? model[element] : static_cast<T>(model[element] + 1);
        T before = 99;
        Request request;
        request.kind = adds ? RequestKind::kFetchAdd : RequestKind::kCompareSwap;
        request.first = static_cast<int64_t>(element);
        request.count = 1;
        request.delta = &operand;
        request.out = &before;
        std::memcpy(&request.expected, &expected, sizeof(T));
        ASSERT_TRUE(Call(&shard, request).ok());
        ASSERT_EQ(before, model[element]);
        if (adds) model[element] += operand;
        if (!adds && is_expected) model[element] = operand;
        break;
      }
      default:
        model = values(count);
        ASSERT_TRUE(Call(&shard, Request::Store(model.data())).ok());
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
  memory.hyper()->values[kLearningRate].store(0.5);
  const std::vector<float> delta(10, 4);
  const int64_t ids[] = {4, 4};
  ASSERT_TRUE(Call(&shard, Request::Add(delta.data())).ok());
  ASSERT_TRUE(Call(&shard, Request::AddRows(ids, 2, delta.data())).ok());
  EXPECT_EQ(memory.values()[0], -2);
  EXPECT_EQ(memory.values()[8], -6);
}

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
