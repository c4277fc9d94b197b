#include "consistency/local_sum.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "support/rounds.h"

namespace multiverso::testing {
namespace {

// Most sums here are exact, so that they do not depend on the order of the terms; round_sum_test
// covers the order.
using Values = std::vector<int64_t>;

// A worker's add in one round: the whole table, or rows in any order.
struct WorkerAdd {
  bool is_rows = false;
  RowIds ids;
  Values delta;
};

// A random sequence of rounds: the adds of each worker, and the table after each round.
class RandomProgram {
 public:
  RandomProgram(uint64_t seed, int workers) : seed_(seed), workers_(workers) {
    std::mt19937_64 random(seed);
    rows_ = 1 + static_cast<int64_t>(random() % 30);
    columns_ = std::vector<int64_t>{1, 3, 300, 3000}[random() % 4];
    rounds_ = 3 + static_cast<int>(random() % 30);
    for (int worker = 0; worker < workers; ++worker) {
      // The last worker makes every round of the program.
      const bool stays = random() % 2 == 0 || worker == workers - 1;
      rounds_of_.push_back(stays ? rounds_ : static_cast<int>(random() % 40) % (rounds_ + 1));
    }
  }

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int rounds() const { return rounds_; }
  int rounds_of(int worker) const { return rounds_of_[static_cast<size_t>(worker)]; }
  bool HasGet(int round) const { return Random(round, 99)() % 3 != 0; }

  WorkerAdd AddOf(int worker, int round) const {
    std::mt19937_64 random = Random(round, worker);
    WorkerAdd add;
    add.is_rows = Random(round, 98)() % 3 == 0 && random() % 4 != 0;
    auto count = static_cast<size_t>(rows_);
    if (add.is_rows) {
      add.ids.resize(random() % 12);
      for (int64_t& id : add.ids)
        id = static_cast<int64_t>(random() % static_cast<uint64_t>(rows_));
      count = add.ids.size();
    }
    add.delta.resize(count * static_cast<size_t>(columns_));
    for (int64_t& value : add.delta) value = static_cast<int64_t>(random() % 1000);
    return add;
  }

  // Returns the table after each number of rounds.
  std::vector<Values> States() const {
    std::vector<Values> states = {Values(static_cast<size_t>(rows_ * columns_), 0)};
    for (int round = 0; round < rounds_; ++round) {
      Values next = states.back();
      for (int worker = 0; worker < workers_; ++worker) {
        if (round >= rounds_of(worker)) continue;
        const WorkerAdd add = AddOf(worker, round);
        for (size_t i = 0; i < add.delta.size(); ++i) {
          const size_t columns = static_cast<size_t>(columns_);
          const size_t row = add.is_rows ? static_cast<size_t>(add.ids[i / columns]) : i / columns;
          next[row * columns + i % columns] += add.delta[i];
        }
      }
      states.push_back(next);
    }
    return states;
  }

 private:
  // `stream` is a worker, or 98 or 99 for choices that all workers must make in the same way.
  std::mt19937_64 Random(int round, int stream) const {
    std::mt19937_64 random(seed_ * 1000003 + static_cast<uint64_t>(round * 100 + stream));
    random.discard(3);
    return random;
  }

  uint64_t seed_;
  int workers_;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int rounds_ = 0;
  std::vector<int> rounds_of_;
};

void RunWorker(const RandomProgram& program, const std::vector<Values>& states, int rank,
               RoundsWorker<int64_t>* worker) {
  std::mt19937_64 pace(static_cast<uint64_t>(rank));
  for (int round = 0; round < program.rounds_of(rank); ++round) {
    const WorkerAdd add = program.AddOf(rank, round);
    const Values& expected = states[static_cast<size_t>(round + 1)];
    if (pace() % 4 == 0) std::this_thread::yield();
    if (!add.is_rows && program.HasGet(round) && pace() % 2 == 0) {
      ASSERT_EQ(worker->AddGet(add.delta, pace() % 2 == 0), expected);
      continue;
    }
    if (add.is_rows) {
      worker->AddRows(add.ids, add.delta);
    } else {
      worker->Add(add.delta);
    }
    if (!program.HasGet(round)) continue;
    if (pace() % 2 == 0) {
      ASSERT_EQ(worker->Get(), expected);
    } else {
      const int64_t row = program.rows() - 1;
      const auto tail = expected.end() - program.columns();
      Values last(tail, expected.end());
      last.insert(last.end(), tail, expected.end());
      ASSERT_EQ(worker->GetRows({row, row}), last);
    }
  }
  worker->consistency()->Finish();
}

void RunProgram(uint64_t seed, int workers, bool waits) {
  SCOPED_TRACE(seed);
  const RandomProgram program(seed, workers);
  const std::vector<Values> states = program.States();
  RoundsTable<int64_t> table(AllOf(workers), kSync, program.rows(), program.columns());
  OnThreads(workers, [&](int rank) {
    const auto worker = table.For(rank, waits);
    RunWorker(program, states, rank, worker.get());
  });
  // This get applies the last rounds if no worker has applied them.
  EXPECT_EQ(table.For(0)->Get(), states.back());
}

TEST(LocalSum, MatchAModelForRandomPrograms) {
  for (const int workers : {1, 2, 3, 4}) {
    for (uint64_t seed = 1; seed <= 15; ++seed) RunProgram(seed, workers, /*waits=*/true);
  }
}

TEST(LocalSum, ResumePendingCalls) {
  for (const int workers : {2, 3}) {
    for (uint64_t seed = 100; seed <= 115; ++seed) RunProgram(seed, workers, /*waits=*/false);
  }
}

TEST(LocalSum, MayCompleteWhileAWorkerChecksTheirProgress) {
  for (const int workers : {2, 4}) {
    RoundsTable<float> table(AllOf(workers), kSync, 1);
    OnThreads(workers, [&](int rank) {
      const auto worker = table.For(rank);
      for (int round = 1; round <= 20000; ++round) {
        worker->Add({1});
        ASSERT_EQ(worker->Get()[0], static_cast<float>(round * workers));
      }
    });
  }
}

TEST(LocalSum, NeedTheDeltaOfEveryWorkerButNoFurtherCall) {
  constexpr int64_t kSize = 60000;
  RoundsTable<float> table(AllOf(3), kSync, kSize);
  const auto first = table.For(0);
  const auto second = table.For(1);
  const auto third = table.For(2);
  const std::vector<float> ones(kSize, 1);
  first->Add(ones);
  second->Add(ones);
  third->Add(ones);
  EXPECT_EQ(second->Get(), std::vector<float>(kSize, 3));
  EXPECT_EQ(second->Get(), std::vector<float>(kSize, 3));
}

TEST(LocalSum, ApplyNothingBeforeAllHaveAdded) {
  RoundsTable<float> table(AllOf(2), kSync, 3);
  const auto early = table.For(0);
  const auto late = table.For(1);
  EXPECT_EQ(early->Get(), std::vector<float>(3, 0));
  early->Add({1, 1, 1});
  std::vector<float> out(3);
  Progress progress;
  const auto get = [&] {
    return early->consistency()->Run(Request::Get(out.data()), &progress, WithoutWaiting());
  };
  EXPECT_TRUE(get().pending());
  EXPECT_EQ(late->Get(), std::vector<float>(3, 0));
  late->Add({1, 2, 3});
  EXPECT_TRUE(get().ok());
  EXPECT_EQ(out, (std::vector<float>{2, 3, 4}));
}

TEST(LocalSum, LetAWorkerAddAFewRoundsAhead) {
  RoundsTable<float> table(AllOf(2), kSync, 1);
  const auto early = table.For(0);
  const auto late = table.For(1);
  for (int i = 0; i < Staging::kCopies; ++i) early->Add({1});
  const std::vector<float> delta(1, 1);
  Progress progress;
  const auto add = [&] {
    return early->consistency()->Run(Request::Add(delta.data()), &progress, WithoutWaiting());
  };
  EXPECT_TRUE(add().pending());
  late->Add({10});
  EXPECT_TRUE(add().ok());
  for (int i = 0; i < Staging::kCopies; ++i) late->Add({10});
  EXPECT_EQ(late->Get(), std::vector<float>(1, 11 * (Staging::kCopies + 1)));
  EXPECT_EQ(early->Get(), std::vector<float>(1, 11 * (Staging::kCopies + 1)));
}

TEST(LocalSum, CallTheUpdaterOnce) {
  RoundsTable<double> table(AllOf(2), kSync, 2, 1, UpdaterKind::kSgd);
  table.hyper()->values[kLearningRate].store(0.1);
  OnThreads(2, [&](int rank) {
    const auto worker = table.For(rank);
    const double mine = rank == 0 ? 0.3 : 1e-5;
    EXPECT_EQ(worker->AddGet({mine, 1}), (std::vector<double>{-0.1 * (0.3 + 1e-5), -0.1 * 2}));
  });
}

TEST(LocalSum, NameAWorkerThatLeavesDuringARound) {
  RoundsTable<float> table(AllOf(3), kSync, 100000);
  OnThreads(3, [&](int rank) {
    const auto worker = table.For(rank);
    const std::vector<float> ones(100000, 1);
    for (int round = 0; round < 5; ++round) worker->AddGet(ones);
    if (rank == 1) {
      table.ranks()[1]->state()->Leave("bad batch");
      return;
    }
    std::vector<float> out(100000);
    EXPECT_TRUE(IsError(Call(worker->consistency(), Request::AddGet(ones.data(), out.data())),
                        Code::kPeerLost, "rank 1 left (bad batch)", "round 5 of table 'w'"));
  });
}

TEST(LocalSum, AreReadAsAWholeByAFinishedWorker) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a finished worker reads while others write, and discards such a copy";
#endif
  constexpr int64_t kSize = 50000;
  constexpr int kRounds = 300;
  RoundsTable<int32_t> table(AllOf(3), kSync, kSize);
  std::atomic<int> active_workers{2};
  OnThreads(3, [&](int rank) {
    const auto worker = table.For(rank);
    if (rank < 2) {
      for (int round = 0; round < kRounds; ++round) worker->AddGet(std::vector<int32_t>(kSize, 1));
      --active_workers;
      return;
    }
    worker->consistency()->Finish();
    int32_t before = 0;
    while (active_workers.load() > 0) {
      const std::vector<int32_t> seen = worker->Get();
      ASSERT_EQ(seen, std::vector<int32_t>(kSize, seen[0]));
      ASSERT_GE(seen[0], before);
      ASSERT_EQ(seen[0] % 2, 0);
      before = seen[0];
    }
    EXPECT_EQ(worker->GetRows({0, kSize - 1}), (std::vector<int32_t>(2, 2 * kRounds)));
  });
}

TEST(LocalSum, RejectAddsOfAFinishedWorker) {
  RoundsTable<float> table(AllOf(2), kSync, 1);
  const auto worker = table.For(0);
  worker->consistency()->Finish();
  const std::vector<float> delta(1, 1);
  EXPECT_EQ(Call(worker->consistency(), Request::Add(delta.data())).code(), Code::kState);
  const auto other = table.For(1);
  EXPECT_EQ(other->AddGet({3}), std::vector<float>(1, 3));
  EXPECT_EQ(worker->Get(), std::vector<float>(1, 3));
}

}  // namespace
}  // namespace multiverso::testing
