#include "consistency/staleness_bound.h"

#include <gtest/gtest.h>

#include "consistency/call_comparison.h"
#include "support/limits.h"
#include "support/rounds.h"
#include "support/spanning_members.h"
#include "support/thread_messenger.h"

namespace multiverso::testing {
namespace {

// The table has one element per worker, in which that worker counts its adds.
using Counts = std::vector<int64_t>;

// Returns a delta that counts one add of `rank`.
Counts AddOf(int rank, int ranks) {
  Counts one(static_cast<size_t>(ranks), 0);
  one[static_cast<size_t>(rank)] = 1;
  return one;
}

TEST(StalenessBound, LetsAWorkerRunAheadByTheStaleness) {
  RoundsTable<int64_t> table(AllOf(2), StaleBy(3), 2);
  const auto fast = table.For(0);
  const auto slow = table.For(1);
  const Counts one = AddOf(0, 2);
  for (int i = 0; i < 3; ++i) fast->Add(one);
  const auto add = [&] {
    return Call(fast->consistency(), Request::Add(one.data()), WithoutWaiting());
  };
  EXPECT_TRUE(add().pending());
  EXPECT_EQ(fast->Get(), (Counts{3, 0}));
  slow->Add(AddOf(1, 2));
  EXPECT_TRUE(add().ok());
  EXPECT_TRUE(add().pending());
  EXPECT_EQ(slow->Get(), (Counts{4, 1}));
}

TEST(StalenessBound, DoesNotApplyToFinishedWorkers) {
  RoundsTable<int64_t> table(AllOf(2), StaleBy(1), 2);
  const auto active = table.For(0);
  const auto finished = table.For(1);
  finished->consistency()->Finish();
  for (int i = 0; i < 100; ++i) active->Add(AddOf(0, 2));
  EXPECT_EQ(finished->Get(), (Counts{100, 0}));
  const Counts delta(2, 1);
  Counts out(2);
  EXPECT_EQ(Call(finished->consistency(), Request::Add(delta.data())).code(), Code::kState);
  EXPECT_EQ(Call(finished->consistency(), Request::AddGet(delta.data(), out.data())).code(),
            Code::kState);
}

TEST(StalenessBound, SettlesWhenTheClocksOfOtherNodesHaveArrived) {
  const auto room = std::make_shared<MailRoom>(2, 0, 1);
  const auto rank = ValueOf(RankContext::Join(
      ValueOf(
          Segment::CreateShared(NodeMemory::ControlBytes(2, 1) + NodeMemory::ScratchBytes(1, 2))),
      SpanningMembers({1, 1}, 0), std::make_unique<ThreadMessenger>(room, 0)));
  Segment memory = ValueOf(Segment::CreatePrivate(WorkerClocks::BytesFor(2)));
  StalenessBound bound(1, nullptr, WorkerClocks(memory.data(), rank.get(), "w"));
  WorkerClocks leader(memory.data(), rank.get(), "w");

  SyncPoint point;
  point.number = 3;
  bound.ReachSyncPoint(point);
  EXPECT_TRUE(bound.Settle(WithoutWaiting()).pending());
  WorkerClocks::Snapshot other;
  other.adds = 4;
  other.sync_point = 2;
  StoreAndCompare(&leader, 1, other);
  EXPECT_TRUE(bound.Settle(WithoutWaiting()).pending());
  other.adds = 5;
  other.sync_point = 3;
  StoreAndCompare(&leader, 1, other);
  EXPECT_TRUE(IsOk(bound.Settle(WithoutWaiting())));
  EXPECT_EQ(bound.Clocks(), (std::vector<uint64_t>{0, 5}));
}

}  // namespace
}  // namespace multiverso::testing
