#include "consistency/make_consistency.h"

#include <gtest/gtest.h>

#include "consistency/rounds.h"
#include "consistency/staleness_bound.h"
#include "support/rounds.h"

namespace multiverso::testing {
namespace {

StagedShape ShapeOf(int64_t rows) { return StagedShape{StripeLayout(rows, 4), 1, DType::kFloat32}; }

Result<int64_t> BytesOf(const ModeOptions& mode, int64_t rows, int workers) {
  const RankContexts ranks(AllOf(workers));
  return ConsistencyBytes(mode, ShapeOf(rows), ranks[0]->members());
}

TEST(MakeConsistency, NeedsNoMemoryInAsyncMode) {
  EXPECT_EQ(BytesOf(ModeOptions{}, 1000, 4).value(), 0);
  RoundsTable<float> table(AllOf(1), ModeOptions{}, 10);
  EXPECT_FALSE(table.For(0)->consistency()->HasRounds());
}

TEST(MakeConsistency, GivesServersAsyncModeInEveryMode) {
  const RankContexts ranks({Role::kServer, Role::kAll});
  for (const ModeOptions& mode : {ModeOptions{}, StaleBy(1), kSync}) {
    EXPECT_FALSE(
        MakeConsistency(mode, ShapeOf(1), 0, nullptr, nullptr, ranks[0], "w")->HasRounds());
  }
}

TEST(MakeConsistency, FollowsTheModeOfTheSession) {
  RoundsTable<float> sync(AllOf(2), kSync, 10);
  EXPECT_NE(dynamic_cast<Rounds*>(sync.For(1)->consistency()), nullptr);
  RoundsTable<float> stale(AllOf(2), StaleBy(3), 10);
  EXPECT_NE(dynamic_cast<StalenessBound*>(stale.For(0)->consistency()), nullptr);
}

TEST(MakeConsistency, NeedsMemoryPerWorkerInSyncModeAndLittleForStaleness) {
  constexpr int64_t kRows = 1 << 20;
  const auto bytes = [](const ModeOptions& mode, int workers) {
    return BytesOf(mode, kRows, workers).value();
  };
  EXPECT_LT(bytes(StaleBy(2), 4), 4096);
  EXPECT_GE(bytes(kSync, 1), 4 * kRows);
  EXPECT_GE(bytes(kSync, 4), 4 * 4 * kRows);
}

TEST(MakeConsistency, ReportsMemoryThatCannotBeAddressed) {
  EXPECT_TRUE(IsError(BytesOf(kSync, int64_t{1} << 45, 4), Code::kMemory, "4 workers"));
}

}  // namespace
}  // namespace multiverso::testing
