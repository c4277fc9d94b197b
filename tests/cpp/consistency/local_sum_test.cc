#include "consistency/local_sum.h"

#include <gtest/gtest.h>

#include <future>

#include "support/rounds.h"

namespace multiverso::testing {
namespace {

TEST(LocalSum, MayCompleteWhileAWorkerChecksTheirProgress) {
  for (const int workers : {2, 4}) {
    RoundsTable<int32_t> table(AllOf(workers), kSync, 1);
    OnThreads(workers, [&](int rank) {
      const auto worker = table.For(rank);
      for (int round = 1; round <= 5000; ++round) {
        int32_t values[] = {round, 0};
        const auto kind = (round / 2 + rank) % 3 == 0 ? RequestKind::kGet : RequestKind::kAddGet;
        if (kind == RequestKind::kGet) worker->Add({round});
        const Request call = Request::Of(kind, nullptr, 0, values, values + 1);
        ASSERT_TRUE(Call(worker->consistency(), call).ok());
        ASSERT_EQ(values[1], round * (round + 1) / 2 * workers);
      }
    });
  }
}

TEST(LocalSum, NeedTheDeltaOfEveryWorkerButNoFurtherCall) {
  constexpr int64_t kSize = 60000;
  RoundsTable<float> table(AllOf(3), kSync, kSize);
  const auto second = table.For(1);
  const std::vector<float> ones(kSize, 1);
  for (const int other : {0, 2}) table.For(other)->Add(ones);
  second->Add(ones);
  EXPECT_EQ(second->Get(), std::vector<float>(kSize, 3));
}

TEST(LocalSum, ApplyNothingBeforeAllHaveAdded) {
  RoundsTable<float> table(AllOf(2), kSync, 3);
  const auto early = table.For(0);
  const auto late = table.For(1);
  EXPECT_EQ(early->Get(), std::vector<float>(3, 0));
  early->Add({1, 1, 1});
  auto got = std::async(std::launch::async, [&] { return early->Get(); });
  EXPECT_EQ(late->Get(), std::vector<float>(3, 0));
  late->Add({1, 2, 3});
  EXPECT_EQ(got.get(), (std::vector<float>{2, 3, 4}));
}

TEST(LocalSum, LetAWorkerAddAFewRoundsAhead) {
  RoundsTable<float> table(AllOf(2), kSync, 1);
  const auto early = table.For(0);
  const auto late = table.For(1);
  // A small table has one buffer more, and a buffer is free only after the next add.
  for (int i = 0; i <= Staging::kCopies; ++i) early->Add({1});
  const std::vector<float> delta(1, 1);
  const auto add = [&] {
    return Call(early->consistency(), Request::Add(delta.data()), WithoutWaiting());
  };
  EXPECT_TRUE(add().pending());
  for (int i = 0; i < Staging::kCopies + 2; ++i) late->Add({10});
  EXPECT_TRUE(add().ok());
  EXPECT_EQ(late->Get(), std::vector<float>(1, 11 * (Staging::kCopies + 2)));
  EXPECT_EQ(early->Get(), late->Get());
}

}  // namespace
}  // namespace multiverso::testing
