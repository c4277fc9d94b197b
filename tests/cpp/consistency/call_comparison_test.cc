#include "consistency/call_comparison.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/text.h"
#include "consistency/worker_wait.h"
#include "memory/segment.h"
#include "support/limits.h"
#include "support/rank_contexts.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

// One table's clocks, as seen by each rank of a node.
class Clocks {
 public:
  explicit Clocks(const Roles& roles) : ranks_(roles) {
    memory_ =
        ValueOf(Segment::CreatePrivate(WorkerClocks::BytesFor(static_cast<int>(roles.size()))));
    for (int rank = 0; rank < static_cast<int>(roles.size()); ++rank) {
      if (roles[static_cast<size_t>(rank)] == Role::kServer) {
        clocks_.emplace_back();
      } else {
        clocks_.emplace_back(WorkerClocks(memory_.data(), ranks_[rank], "w"));
      }
    }
  }

  WorkerClocks& operator[](int rank) { return *clocks_[static_cast<size_t>(rank)]; }
  RankContexts& ranks() { return ranks_; }
  bool IsAborted() const { return ranks_[0]->state()->IsAborted(); }

 private:
  RankContexts ranks_;
  Segment memory_;
  std::vector<std::optional<WorkerClocks>> clocks_;
};

Status Tick(WorkerClocks* clocks, TickKind kind, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(WorkerWait(clocks).AwaitTicks("a call", limit));
  return TickAndCompare(clocks, kind);
}

Status MakeAdd(WorkerClocks* clocks) {
  MV_RETURN_IF_NOT_OK(Tick(clocks, TickKind::kAdd, Patiently()));
  clocks->CountAdd();
  return Status::Ok();
}

Status MakeGet(WorkerClocks* clocks) { return Tick(clocks, TickKind::kGet, Patiently()); }

// Waits until the other workers have passed `round`.
Status WaitForOthers(WorkerClocks* clocks, uint64_t round, const WaitLimit& limit) {
  return WorkerWait(clocks).AwaitCalls(
      "get", limit, [&](int worker) { return clocks->HasPassed(worker, round); });
}

TEST(WorkerClocks, CountAddsOfWorkersInRankOrder) {
  Clocks clocks({Role::kServer, Role::kAll, Role::kWorker});
  EXPECT_EQ(clocks[1].workers(), 2);
  EXPECT_EQ(clocks[1].me(), 0);
  EXPECT_EQ(clocks[2].me(), 1);
  ASSERT_TRUE(MakeAdd(&clocks[2]).ok());
  EXPECT_EQ(clocks[1].adds(1), 1U);
  EXPECT_TRUE(clocks[1].HasPassed(1, 0));
  EXPECT_FALSE(clocks[1].HasPassed(1, 1));
  EXPECT_FALSE(clocks[2].AllHavePassed(0));
  ASSERT_TRUE(MakeAdd(&clocks[1]).ok());
  EXPECT_TRUE(clocks[2].AllHavePassed(0));
}

TEST(WorkerClocks, FinishedWorkerHasPassedEveryRound) {
  Clocks clocks(AllOf(2));
  clocks[1].Finish();
  EXPECT_TRUE(clocks[0].HasPassed(1, 1000));
  EXPECT_FALSE(clocks[0].AllHavePassed(0));
  EXPECT_EQ(MakeAdd(&clocks[1]).code(), Code::kState);
  ASSERT_TRUE(MakeAdd(&clocks[0]).ok());
  EXPECT_TRUE(clocks[0].AllHavePassed(0));
}

TEST(CallComparison, NamesTheRoundOfAnUncountedAdd) {
  Clocks clocks(AllOf(2));
  WorkerClocks::Snapshot other;  // of rank 1, which makes the same calls
  for (; other.adds < 3; ++other.adds) {
    ASSERT_TRUE(MakeAdd(&clocks[0]).ok());
    ASSERT_TRUE(MakeGet(&clocks[0]).ok());
    other.gets |= uint64_t{1} << (other.ticks + 1);
    other.ticks += 2;
  }
  // Rank 0 stops in the middle of its fourth add.
  ASSERT_TRUE(TickAndCompare(&clocks[0], TickKind::kAdd).ok());
  other.gets |= uint64_t{1} << other.ticks;
  other.latest = ++other.ticks;
  StoreAndCompare(&clocks[0], 1, other);
  // In a job this runs on the service thread, so a shutdown must not assume that the caller knows
  // of the mismatch.
  EXPECT_FALSE(clocks.ranks()[0]->state()->IsAbortKnown());
  const Status status = WorkerWait(&clocks[0]).CheckRunning();
  EXPECT_TRUE(clocks.ranks()[0]->state()->IsAbortKnown());
  EXPECT_TRUE(IsError(status, Code::kMismatch,
                      "round 3 of table 'w': rank 0 called add, rank 1 called get"));
}

TEST(CallComparison, DetectsDifferentCallsInEitherOrder) {
  for (const int second : {0, 1}) {
    Clocks clocks(AllOf(2));
    for (int i = 0; i < 3; ++i) {
      for (const int rank : {0, 1}) {
        ASSERT_TRUE(MakeAdd(&clocks[rank]).ok());
        ASSERT_TRUE(MakeGet(&clocks[rank]).ok());
      }
    }
    ASSERT_TRUE((second == 0 ? MakeGet(&clocks[1]) : MakeAdd(&clocks[0])).ok());
    const Status status = second == 0 ? MakeAdd(&clocks[0]) : MakeGet(&clocks[1]);
    EXPECT_TRUE(IsError(status, Code::kMismatch,
                        "sync round 3 of table 'w': rank 0 called add, rank 1 called get (call "
                        "number 6 on the table)"));
    // The other worker gets the same mismatch at its next call.
    EXPECT_EQ(MakeGet(&clocks[1 - second]).text(), status.text());
  }
}

// Ticks that are kTicksKept = 64 apart share a bit. Since every 67th is an add, their kinds differ.
TEST(CallComparison, DoesNotConfuseATickWithALaterOneOfItsBit) {
  Clocks clocks(AllOf(3));
  OnThreads(3, [&](int rank) {
    for (int i = 0; i < 20000; ++i) {
      const TickKind kind = i % 67 == 0 ? TickKind::kAdd : TickKind::kGet;
      ASSERT_TRUE(IsOk(Tick(&clocks[rank], kind, Patiently())));
    }
  });
}

TEST(WorkerWait, LimitsHowFarAWorkerIsAhead) {
  Clocks clocks(AllOf(2));
  uint64_t ahead = 0;
  while (Tick(&clocks[0], TickKind::kGet, WithoutWaiting()).ok()) ++ahead;
  EXPECT_LT(ahead, WorkerClocks::kTicksKept);
  EXPECT_GT(ahead, WorkerClocks::kTicksKept / 2);
  EXPECT_TRUE(Tick(&clocks[0], TickKind::kGet, WithoutWaiting()).pending());
  ASSERT_TRUE(MakeGet(&clocks[1]).ok());
  EXPECT_TRUE(Tick(&clocks[0], TickKind::kGet, WithoutWaiting()).ok());
  clocks[1].Finish();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(MakeGet(&clocks[0]).ok());
}

TEST(WorkerWait, ReturnsTheReasonOfAnAbortOnlyIfItEndsTheWait) {
  Clocks clocks(AllOf(2));
  EXPECT_TRUE(WaitForOthers(&clocks[0], 0, WithoutWaiting()).pending());
  ASSERT_TRUE(MakeAdd(&clocks[1]).ok());
  EXPECT_TRUE(WaitForOthers(&clocks[0], 0, Patiently()).ok());
  // The wait has ended before this abort. Only a rank that is waiting gets the timeout itself.
  clocks.ranks()[1]->state()->Abort(Status(Code::kTimeout, "waited too long"));
  EXPECT_EQ(WaitForOthers(&clocks[0], 1, WithoutWaiting()).code(), Code::kAborted);
}

TEST(WorkerWait, AcceptsTheLastAddOfAWorkerThatLeft) {
  Clocks clocks(AllOf(2));
  ASSERT_TRUE(MakeAdd(&clocks[1]).ok());
  clocks.ranks()[1]->state()->Leave("done");
  EXPECT_TRUE(WaitForOthers(&clocks[0], 0, Patiently()).ok());
}

constexpr SyncPoint kBarrier{1, "barrier", false};
constexpr SyncPoint kShutdown{1, "shutdown", true};

TEST(CallComparisonAtASyncPoint, DetectsAMissingCallInEitherOrder) {
  for (const bool in_order : {true, false}) {
    for (const SyncPoint& point : {kBarrier, kShutdown}) {
      Clocks clocks(AllOf(2));
      for (const int rank : {0, 1}) ASSERT_TRUE(MakeAdd(&clocks[rank]).ok());
      ASSERT_TRUE(MakeAdd(&clocks[0]).ok());
      ArriveAndCompare(&clocks[in_order ? 0 : 1], point);
      EXPECT_FALSE(clocks.IsAborted());
      ArriveAndCompare(&clocks[in_order ? 1 : 0], point);
      EXPECT_TRUE(IsError(MakeGet(&clocks[0]), Code::kMismatch,
                          StrCat("sync round 1 of table 'w': rank 0 called add, rank 1 "
                                 "called ",
                                 point.call)));
      EXPECT_EQ(MakeGet(&clocks[0]).text().find("finish() before shutdown") != std::string::npos,
                point.is_last);
    }
  }
}

TEST(CallComparisonAtASyncPoint, IgnoresWorkersThatHaveNotReachedIt) {
  Clocks clocks(AllOf(2));
  ArriveAndCompare(&clocks[0], kBarrier);
  ASSERT_TRUE(MakeAdd(&clocks[1]).ok());
  EXPECT_FALSE(clocks.IsAborted());
  ArriveAndCompare(&clocks[0], SyncPoint{2, "barrier", false});
  ArriveAndCompare(&clocks[1], kBarrier);
  EXPECT_FALSE(clocks.IsAborted());
}

TEST(CallComparisonAtASyncPoint, AllowsAFinishedWorkerToDiffer) {
  for (const SyncPoint& point : {kBarrier, kShutdown}) {
    Clocks clocks(AllOf(2));
    ASSERT_TRUE(MakeAdd(&clocks[0]).ok());
    clocks[1].Finish();
    ArriveAndCompare(&clocks[0], point);
    ArriveAndCompare(&clocks[1], point);
    EXPECT_FALSE(clocks.IsAborted());
  }
}

TEST(CallComparisonAtTheLastSyncPoint, AllowsATrailingGetButNoTrailingAdd) {
  for (const bool adds : {false, true}) {
    Clocks clocks(AllOf(2));
    ASSERT_TRUE((adds ? MakeAdd(&clocks[0]) : MakeGet(&clocks[0])).ok());
    if (adds) clocks[0].Finish();
    ArriveAndCompare(&clocks[0], kShutdown);
    ArriveAndCompare(&clocks[1], kShutdown);
    EXPECT_EQ(clocks.IsAborted(), adds);
  }
}

TEST(CallComparisonAtASyncPoint, IsMadeByAtLeastOneOfTwoWorkers) {
  for (int repetition = 0; repetition < 200; ++repetition) {
    Clocks clocks(AllOf(2));
    ASSERT_TRUE(MakeAdd(&clocks[0]).ok());
    OnThreads(2, [&](int rank) { ArriveAndCompare(&clocks[rank], kBarrier); });
    ASSERT_TRUE(clocks.IsAborted());
  }
}

}  // namespace
}  // namespace multiverso::testing
