#include "shard/lazy_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "shard/shard_copies.h"
#include "support/memory_shard.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

InitializerSpec Uniform(uint64_t seed = 7) {
  InitializerSpec spec;
  spec.kind = static_cast<int32_t>(InitializerKind::kUniform);
  spec.seed = seed;
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

// Makes the same random calls on a lazy shard and on one that holds all initial values.
void RunRandomProgram(uint32_t seed, int64_t rows, int64_t columns, UpdaterKind kind) {
  constexpr int64_t kFirstRow = 1000;
  const MemoryShard<float> memory(rows, columns, kind, Uniform());
  const MemoryShard<float> full_memory(rows, columns, kind);
  Shard lazy = memory.For(0, kFirstRow);
  Shard full = full_memory.For(0, kFirstRow);
  for (int i = 0; i < kHyperCount; ++i) {
    double values[kHyperCount];
    SetDefaultHypers(kind, values);
    lazy.hyper()->values[i].store(values[i]);
    full.hyper()->values[i].store(values[i]);
  }
  const auto initial = InitialValues(rows, columns, kFirstRow);
  ASSERT_TRUE(Call(&full, Request::Store(initial.data())).ok());
  std::mt19937_64 random(seed);
  const auto count = static_cast<size_t>(rows * columns);
  for (int step = 0; step < 40; ++step) {
    std::vector<int64_t> ids(random() % 40);
    for (int64_t& id : ids) {
      id = kFirstRow + static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
    }
    std::vector<float> delta(ids.size() * static_cast<size_t>(columns));
    for (float& value : delta) value = static_cast<float>(random() % 17) / 8 - 1;
    std::vector<float> out(count), full_out(count);
    const int64_t first = static_cast<int64_t>(random() % count);
    const int64_t part = static_cast<int64_t>(random() % (count - static_cast<size_t>(first))) + 1;
    const int64_t touched = memory.touched();
    switch (random() % 5) {
      case 0:
        ASSERT_TRUE(Call(&lazy, Request::Get(out.data())).ok());
        ASSERT_TRUE(Call(&full, Request::Get(full_out.data())).ok());
        ASSERT_EQ(out, full_out);
        ASSERT_EQ(memory.touched(), touched);
        lazy.CopyUnlocked(Request::Get(out.data()));
        ASSERT_EQ(out, full_out);
        break;
      case 1:
        out.resize(delta.size());
        full_out.resize(delta.size());
        ASSERT_TRUE(Call(&lazy, GetRowsOf(ids, &out)).ok());
        ASSERT_TRUE(Call(&full, GetRowsOf(ids, &full_out)).ok());
        ASSERT_EQ(out, full_out);
        ASSERT_EQ(memory.touched(), touched);
        break;
      case 2: {
        Request get = Request::Get(out.data());
        get.first = kFirstRow * columns + first;
        get.count = part;
        ASSERT_TRUE(Call(&lazy, get).ok());
        get.out = full_out.data();
        ASSERT_TRUE(Call(&full, get).ok());
        ASSERT_EQ(out, full_out);
        ASSERT_EQ(memory.touched(), touched);
        break;
      }
      case 3: {
        Request add = Request::Add(initial.data());
        add.first = kFirstRow * columns + first;
        add.count = part;
        if (step % 4 != 0) break;
        ASSERT_TRUE(Call(&lazy, add).ok());
        ASSERT_TRUE(Call(&full, add).ok());
        break;
      }
      default:
        ASSERT_TRUE(Call(&lazy, AddRowsOf(ids, delta)).ok());
        ASSERT_TRUE(Call(&full, AddRowsOf(ids, delta)).ok());
    }
    ASSERT_EQ(memory.rows_in_use(), memory.touched());
  }
}

TEST(LazyRows, MatchAShardThatHoldsTheInitialValues) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    RunRandomProgram(seed, 1, 1, UpdaterKind::kAdd);
    RunRandomProgram(seed, 20'001, 3, UpdaterKind::kAdd);
    RunRandomProgram(seed, 3, 20'001, UpdaterKind::kAdagrad);
    RunRandomProgram(seed, 131, 64, UpdaterKind::kMomentum);
    RunRandomProgram(seed, 40'000, 1, UpdaterKind::kSgd);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(LazyRows, AreTouchedOnceByConcurrentRanks) {
  constexpr int64_t kRows = 5000;
  constexpr int64_t kColumns = 9;
  constexpr int kRanks = 4;
  constexpr int kAdds = 20;
  const MemoryShard<float> memory(kRows, kColumns, UpdaterKind::kAdd, Uniform());
  std::atomic<bool> is_done{false};
  OnThreads(kRanks, [&](int rank) {
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
  for (int i = 0; i < (kRanks - 1) * kAdds; ++i) {
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
  Interrupt interrupt = InterruptAtOnce();
  EXPECT_EQ(Call(&shard, AddRowsOf<float>({7}, delta), WaitLimit::Until(Instant::max(), &interrupt))
                .code(),
            Code::kAborted);
  EXPECT_EQ(memory.touched(), 0);
}

TEST(LazyRows, RestartAsIfTheyHadNeverBeenUpdated) {
  const MemoryShard<float> memory(100, 4, UpdaterKind::kMomentum, Uniform());
  Shard shard = memory.For(0);
  shard.hyper()->values[kLearningRate].store(1);
  shard.hyper()->values[kMomentum].store(0.5);
  const std::vector<float> delta(12, 1);
  const auto values = [&] {
    std::vector<float> out(400);
    EXPECT_TRUE(Call(&shard, Request::Get(out.data())).ok());
    return out;
  };
  ASSERT_TRUE(Call(&shard, AddRowsOf<float>({3, 50, 99}, delta)).ok());
  const auto once = values();
  const ShardCopies copies(&shard);
  const Initializer own(Uniform(), DType::kFloat32);
  ASSERT_TRUE(copies.Restart(0, 100, own, Patiently()).ok());
  EXPECT_EQ(values(), InitialValues(100, 4));
  EXPECT_EQ(memory.touched(), 3);
  ASSERT_TRUE(Call(&shard, AddRowsOf<float>({3, 50, 99}, delta)).ok());
  EXPECT_EQ(values(), once);
  const Initializer other(Uniform(8), DType::kFloat32);
  ASSERT_TRUE(copies.Restart(0, 100, other, Patiently()).ok());
  EXPECT_EQ(memory.touched(), 100);
  EXPECT_NE(values(), InitialValues(100, 4));
}

}  // namespace
}  // namespace multiverso::testing
