#include "node/node_snapshot.h"

#include <gtest/gtest.h>

#include "support/rank_contexts.h"

namespace multiverso::testing {
namespace {

NodeSnapshot SnapshotOf(const RankContext& rank) {
  return ValueOf(
      NodeSnapshot::Of(reinterpret_cast<const char*>(rank.memory()->control()),
                       NodeControl::BytesFor(rank.members().size(), rank.members().size())));
}

TEST(NodeSnapshot, DescribesTheLastCallsOfEachRank) {
  const RankContexts ranks(AllOf(2));
  ranks[1]->memory()->RecordTable(0, "w", 0, 10, 1);
  EXPECT_EQ(SnapshotOf(*ranks[0]).LastCall(1), "");
  FlightRecorder* const recorder = ranks[1]->memory()->recorder();
  recorder->Begin(CallOf(RequestKind::kGet), 0, 40)->EndAtOnce(Code::kOk);
  recorder->Begin(CallOf(RequestKind::kAdd), 0, 1 << 20)->EndAtOnce(Code::kIndex);
  EXPECT_TRUE(Contains(SnapshotOf(*ranks[0]).LastCall(1), "add of table 'w' (1.0 MiB)"));
  EXPECT_TRUE(Contains(SnapshotOf(*ranks[0]).LastCall(1), "failed with MV_ERR_INDEX"));
  recorder->Begin(CallKind::kBarrier, -1, 0);
  EXPECT_TRUE(Contains(SnapshotOf(*ranks[0]).LastCall(1), "barrier, in it for "));
  const std::string calls = SnapshotOf(*ranks[0]).LastCalls(1, 2);
  EXPECT_TRUE(Contains(calls, "call 3: barrier"));
  EXPECT_TRUE(Contains(calls, "call 2: add"));
  EXPECT_FALSE(Contains(calls, "call 1:"));
  EXPECT_EQ(SnapshotOf(*ranks[1]).LastCall(0), "");
}

TEST(NodeSnapshot, KnowsOnlyTheLast32CallsOfMany) {
  const RankContexts ranks(AllOf(1));
  FlightRecorder* const recorder = ranks[0]->memory()->recorder();
  for (int bytes = 1; bytes <= 1000; ++bytes) recorder->Begin(CallOf(RequestKind::kGet), 0, bytes);
  const std::string calls = SnapshotOf(*ranks[0]).LastCalls(0, 1000);
  EXPECT_TRUE(Contains(calls, "call 1000: get of table number 0 (1000 bytes)"));
  EXPECT_TRUE(Contains(calls, "call 969:"));
  EXPECT_FALSE(Contains(calls, "call 968:"));
}

}  // namespace
}  // namespace multiverso::testing
