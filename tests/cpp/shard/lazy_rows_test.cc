#include "shard/lazy_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "support/memory_shard.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

InitializerSpec Uniform() {
  InitializerSpec spec;
  spec.kind = static_cast<int32_t>(InitializerKind::kUniform);
  spec.seed = 7;
  spec.second = 1;
  return spec;
}

std::vector<float> InitialValues(int64_t rows, int64_t columns, int64_t first_row = 0) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (int64_t row = 0; row < rows; ++row) {
    Initializer(Uniform(), DType::kFloat32)
        .Fill(first_row + row, 0, columns, values.data() + row * columns);
  }
  return values;
}

TEST(LazyRows, AreTouchedOnceByConcurrentRanks) {
  constexpr int64_t kRows = 5000;
  constexpr int64_t kColumns = 9;
  constexpr int kThreads = 4;
  constexpr int kAdds = 20;
  const MemoryShard<float> memory(kRows, kColumns, UpdaterKind::kAdd, Uniform());
  std::atomic<bool> is_done{false};
  OnThreads(kThreads, [&](int rank) {
    Shard shard = memory.For(rank);
    std::mt19937_64 random(static_cast<uint64_t>(rank));
    std::vector<int64_t> ids(static_cast<size_t>(kRows));
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> out(ids.size() * kColumns);
    const auto initial = InitialValues(kRows, kColumns);
    if (rank == 0) {
      // This rank only reads. Every value is the initial one and a whole number of ones.
      while (!is_done.load()) {
        ASSERT_TRUE(Call(&shard, GetRowsOf(ids, &out)).ok());
        for (size_t i = 0; i < out.size(); ++i) {
          const float ones = out[i] - initial[i];
          ASSERT_NEAR(ones, std::round(ones), 1e-4);
        }
      }
      return;
    }
    const std::vector<float> delta(out.size(), 1);
    for (int i = 0; i < kAdds; ++i) {
      std::shuffle(ids.begin(), ids.end(), random);
      ASSERT_TRUE(Call(&shard, AddRowsOf(ids, delta)).ok());
    }
    if (rank == 1) is_done = true;
  });
  EXPECT_EQ(memory.touched(), kRows);
  EXPECT_EQ(memory.rows_in_use(), kRows);
  auto expected = InitialValues(kRows, kColumns);
  for (int i = 0; i < (kThreads - 1) * kAdds; ++i) {
    for (float& value : expected) value += 1;
  }
  EXPECT_EQ(std::vector<float>(memory.values(), memory.values() + expected.size()), expected);
}

TEST(LazyRows, RefuseACallForWhichThereIsNoRoom) {
  constexpr int64_t kRowBytes = 2 * 4 * sizeof(float);  // of the parameters and a state slot
  const MemoryShard<float> memory(1000, 4, UpdaterKind::kAdagrad, Uniform(), 10 * kRowBytes + 5);
  Shard shard = memory.For(0);
  const std::vector<float> delta(11 * 4, 1);
  std::vector<int64_t> ids(11);
  std::iota(ids.begin(), ids.end(), 500);
  EXPECT_TRUE(IsError(Call(&shard, AddRowsOf(ids, delta)), Code::kMemory, "cannot hold 11 rows",
                      "at most 325 bytes (max_bytes)", "of 32 bytes"));
  EXPECT_EQ(memory.touched(), 0);
  EXPECT_EQ(memory.rows_in_use(), 0);
  std::vector<float> out(44);
  ASSERT_TRUE(Call(&shard, GetRowsOf(ids, &out)).ok());
  EXPECT_EQ(out, InitialValues(11, 4, 500));
  // A row that is named twice needs room once.
  ids[10] = ids[9];
  EXPECT_TRUE(Call(&shard, AddRowsOf(ids, delta)).ok());
  EXPECT_EQ(memory.touched(), 10);
  EXPECT_TRUE(Call(&shard, AddRowsOf(ids, delta)).ok());
  EXPECT_TRUE(IsError(Call(&shard, AddRowsOf<float>({7}, delta)), Code::kMemory, "10 are in use"));
  const std::vector<float> whole(4000, 1);
  EXPECT_TRUE(IsError(Call(&shard, Request::Add(whole.data())), Code::kMemory, "990 rows"));
  EXPECT_EQ(memory.rows_in_use(), 10);
}

TEST(LazyRows, ACallThatHasToWaitHoldsNoRoom) {
  const MemoryShard<float> memory(1000, 4, UpdaterKind::kAdd, Uniform());
  Shard shard = memory.For(0);
  ASSERT_TRUE(memory.lock(0)->TryTake(9));
  const std::vector<float> delta(4, 1);
  EXPECT_TRUE(Call(&shard, AddRowsOf<float>({7}, delta), WithoutWaiting()).pending());
  EXPECT_EQ(memory.rows_in_use(), 0);
  memory.lock(0)->Release();
  EXPECT_TRUE(Call(&shard, AddRowsOf<float>({7}, delta), WithoutWaiting()).ok());
  EXPECT_EQ(memory.rows_in_use(), 1);
}

TEST(LazyRows, ACallWaitsForRoomThatAnotherGivesBack) {
  constexpr int64_t kRows = 100;
  // All threads update the rows for which there is just enough room.
  const MemoryShard<float> memory(1000, 4, UpdaterKind::kAdd, Uniform(), kRows * 16);
  std::vector<int64_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), 500);
  const std::vector<float> delta(kRows * 4, 1);
  OnThreads(4, [&](int rank) {
    Shard shard = memory.For(rank);
    EXPECT_TRUE(Call(&shard, AddRowsOf(ids, delta)).ok());
  });
  EXPECT_EQ(memory.touched(), kRows);
  EXPECT_EQ(memory.rows_in_use(), kRows);
}

TEST(LazyRows, ACallThatWaitsForRoomCanBeInterrupted) {
  const MemoryShard<float> memory(1000, 4, UpdaterKind::kAdd, Uniform(), 10 * 16);
  Shard shard = memory.For(0);
  LazyRows::Room others;
  shard.lazy()->TakeRoom(10, &others);
  ASSERT_EQ(others.left(), 10);
  const std::vector<float> delta(4, 1);
  auto interrupt = InterruptAtOnce();
  EXPECT_EQ(Call(&shard, AddRowsOf<float>({7}, delta), WaitLimit::Until(Instant::max(), &interrupt))
                .code(),
            Code::kAborted);
  EXPECT_EQ(memory.touched(), 0);
}

}  // namespace
}  // namespace multiverso::testing
