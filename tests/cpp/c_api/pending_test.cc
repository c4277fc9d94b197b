// A call that waits longer than the time slice of its session returns pending, until it is complete
// or cancelled. In a thread with an interrupt function the call blocks instead.
#include "c_api/pending.h"

#include <gtest/gtest.h>

#include <thread>

#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso::testing {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(2);
constexpr auto kNoSlice = std::chrono::milliseconds(0);
// The timeout of sessions in which a wait is expected to time out.
constexpr auto kTimeout = std::chrono::seconds(1);

TEST(Pending, BarrierWaitsForTheOtherRanks) {
  std::atomic<bool> was_pending{false};
  RunApiJob(2, kSlice, kPatience, [&](MV_Session session, int rank) {
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return was_pending.load(); }));
      EXPECT_EQ(WaitToEnd(MV_SessionBarrier(session)), MV_OK) << MV_LastError();
      return;
    }
    ASSERT_EQ(MV_SessionBarrier(session), MV_PENDING);
    ASSERT_EQ(MV_Wait(), MV_PENDING);
    was_pending.store(true);
    EXPECT_EQ(WaitToEnd(MV_PENDING), MV_OK) << MV_LastError();
    EXPECT_EQ(MV_Wait(), MV_ERR_STATE);
  });
}

TEST(Pending, EveryCallThatCanWaitReturnsPending) {
  RunApiJob(3, kSlice, kPatience, [](MV_Session session, int rank) {
    for (int round = 0; round < 5; ++round) {
      // A different rank is late in each round.
      if (rank == round % 3) std::this_thread::sleep_for(3 * kSlice);
      const MV_Table table = CreateArray(session, 5);
      ASSERT_NE(table, nullptr);
      float data[5] = {1, 1, 1, 1, 1};
      ASSERT_EQ(WaitToEnd(MV_TableAdd(table, data, 5)), MV_OK);
      ASSERT_EQ(WaitToEnd(MV_TableGet(table, data, 5, MV_COLLECTIVE)), MV_OK);
      EXPECT_EQ(data[4], 3);
    }
    EXPECT_EQ(WaitToEnd(MV_SessionClose(session)), MV_OK) << MV_LastError();
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_HANDLE);
  });
}

TEST(Pending, CallBlocksOtherCallsOfItsThread) {
  RunApiJob(2, kSlice, kPatience, [](MV_Session session, int rank) {
    if (rank == 1) return AwaitAbort(session);
    ASSERT_EQ(MV_SessionBarrier(session), MV_PENDING);
    MV_Table table = nullptr;
    float value = 0;
    const MV_TableOptions options = ArrayOptions(1);
    MV_Session other = nullptr;
    const MV_SessionOptions session_options = SessionOptionsOf();
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_STATE);
    EXPECT_TRUE(LastErrorHas("pending call"));
    EXPECT_EQ(MV_TableCreate(session, &options, &table), MV_ERR_STATE);
    EXPECT_EQ(MV_TableGet(table, &value, 1, 0), MV_ERR_STATE);
    EXPECT_EQ(MV_TableAdd(table, &value, 1), MV_ERR_STATE);
    EXPECT_EQ(MV_TableFree(table), MV_ERR_STATE);
    EXPECT_EQ(MV_SessionClose(session), MV_ERR_STATE);
    EXPECT_EQ(MV_SessionOpen(&session_options, &other), MV_ERR_STATE);
    EXPECT_EQ(MV_Cancel("enough"), MV_OK);
    EXPECT_EQ(MV_Wait(), MV_ERR_STATE);
  });
}

TEST(Pending, CollectiveCallBlocksCollectiveCallsOfOtherThreadsOnly) {
  std::atomic<bool> tried{false};
  RunApiJob(2, kSlice, kPatience, [&](MV_Session session, int rank) {
    const MV_Table table = CreateArray(session, 3);
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return tried.load(); }));
      EXPECT_EQ(WaitToEnd(MV_SessionBarrier(session)), MV_OK) << MV_LastError();
      return;
    }
    ASSERT_EQ(MV_SessionBarrier(session), MV_PENDING);
    std::thread([&] {
      float data[3] = {1, 1, 1};
      EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_STATE);
      EXPECT_EQ(MV_SessionClose(session), MV_ERR_STATE);
      EXPECT_EQ(MV_TableGet(table, data, 3, MV_COLLECTIVE), MV_ERR_STATE);
      EXPECT_EQ(MV_TableAddGet(table, data, data, 3), MV_OK) << MV_LastError();
    }).join();
    tried.store(true);
    EXPECT_EQ(WaitToEnd(MV_PENDING), MV_OK) << MV_LastError();
  });
}

TEST(Pending, CancelledCallEndsTheCallsOfTheOtherRanksWithItsReason) {
  RunApiJob(2, kSlice, kPatience, [](MV_Session session, int rank) {
    if (rank == 0) {
      ASSERT_EQ(MV_SessionBarrier(session), MV_PENDING);
      ASSERT_EQ(MV_Cancel("KeyboardInterrupt"), MV_OK);
      // This rank cancelled the call and so knows that the session is aborted: closing is no error.
      EXPECT_EQ(WaitToEnd(MV_SessionClose(session)), MV_OK) << MV_LastError();
      return;
    }
    AwaitAbort(session);
    EXPECT_EQ(WaitToEnd(MV_SessionBarrier(session)), MV_ERR_ABORTED);
    EXPECT_TRUE(LastErrorHas("rank 0 aborted the session: KeyboardInterrupt"));
  });
}

TEST(Pending, CallReachesItsDeadlineAcrossSlices) {
  RunApiJob(2, kSlice, kTimeout, [](MV_Session session, int rank) {
    if (rank == 1) return AwaitAbort(session);
    ASSERT_EQ(MV_SessionBarrier(session), MV_PENDING);
    EXPECT_EQ(WaitToEnd(MV_PENDING), MV_ERR_TIMEOUT);
    EXPECT_TRUE(LastErrorHas("for rank 1"));
  });
}

TEST(Blocking, CallNeverReturnsPending) {
  RunApiJob(2, kNoSlice, kTimeout, [](MV_Session session, int rank) {
    if (rank == 1) return AwaitAbort(session);
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_TIMEOUT);
    EXPECT_EQ(MV_Wait(), MV_ERR_STATE);
  });
}

TEST(Pending, LeavingCancelsTheCall) {
  RunApiJob(2, kSlice, kPatience, [](MV_Session session, int rank) {
    if (rank == 0) {
      ASSERT_EQ(MV_SessionBarrier(session), MV_PENDING);
      EXPECT_EQ(MV_SessionLeave(session, "ValueError"), MV_OK) << MV_LastError();
      EXPECT_EQ(MV_Wait(), MV_ERR_STATE);
      return;
    }
    AwaitAbort(session);
    EXPECT_EQ(WaitToEnd(MV_SessionBarrier(session)), MV_ERR_ABORTED);
    EXPECT_TRUE(LastErrorHas("ValueError"));
  });
}

// Holds the lock of the table's first stripe, so that an add to the table is pending.
class PendingAdd : public AloneTest {
 protected:
  PendingAdd() : AloneTest(kSlice.count()) { EXPECT_TRUE(lock_->TryTake(0)); }

  MV_Table table_ = CreateArray(session_, 40000);
  RobustLock* lock_ = FirstLockOf(table_);
  std::vector<float> data_ = std::vector<float>(40000, 1);
};

TEST_F(PendingAdd, ContinuesWhenTheLockIsReleased) {
  ASSERT_EQ(MV_TableAddGet(table_, data_.data(), data_.data(), 40000), MV_PENDING);
  ASSERT_EQ(MV_Wait(), MV_PENDING);
  lock_->Leave();
  ASSERT_EQ(WaitToEnd(MV_PENDING), MV_OK) << MV_LastError();
  EXPECT_EQ(data_, std::vector<float>(40000, 1));
}

TEST_F(PendingAdd, DoesNotEndTheSessionWhenCancelled) {
  ASSERT_EQ(MV_TableAdd(table_, data_.data(), 40000), MV_PENDING);
  ASSERT_EQ(MV_Cancel("not needed"), MV_OK);
  lock_->Leave();
  EXPECT_EQ(MV_TableAdd(table_, data_.data(), 40000), MV_OK);
  std::vector<float> out(40000);
  EXPECT_EQ(MV_TableGet(table_, out.data(), 40000, 0), MV_OK);
  EXPECT_EQ(out.back(), 1);
  EXPECT_EQ(MV_SessionBarrier(session_), MV_OK);
}

TEST_F(PendingAdd, EndsWithItsThread) {
  std::thread([&] { EXPECT_EQ(MV_TableAdd(table_, data_.data(), 40000), MV_PENDING); }).join();
  lock_->Leave();
}

const char* CountDown(void* argument) {
  return --*static_cast<int*>(argument) > 0 ? nullptr : "enough";
}

// Aborts the calls of this thread from check number `times` on, until the end of the scope.
class AbortsAfter {
 public:
  explicit AbortsAfter(int times) : times_(times) { MV_SetInterrupt(&CountDown, &times_); }
  ~AbortsAfter() { MV_SetInterrupt(nullptr, nullptr); }
  AbortsAfter(const AbortsAfter&) = delete;
  AbortsAfter& operator=(const AbortsAfter&) = delete;
  int left() const { return times_; }

 private:
  int times_;
};

TEST(Interrupted, CallEndsTheCallsOfTheOtherRanksWithItsReason) {
  for (const auto slice : {kNoSlice, kSlice}) {
    RunApiJob(2, slice, kPatience, [](MV_Session session, int rank) {
      if (rank == 0) {
        const AbortsAfter twice(2);
        EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_ABORTED);
        EXPECT_STREQ(MV_LastError(), "enough");
        EXPECT_EQ(MV_Wait(), MV_ERR_STATE);
        EXPECT_EQ(MV_SessionClose(session), MV_OK) << MV_LastError();
        return;
      }
      AwaitAbort(session);
      EXPECT_EQ(WaitToEnd(MV_SessionBarrier(session)), MV_ERR_ABORTED);
      EXPECT_TRUE(LastErrorHas("rank 0 aborted the session: enough"));
    });
  }
}

TEST(Interrupted, CollectiveGetEndsTheSessionForAll) {
  RunApiJob(2, kNoSlice, kPatience, [](MV_Session session, int rank) {
    const MV_Table table = CreateArray(session, 3);
    float data[3] = {};
    const AbortsAfter once_on_rank_0(rank == 0 ? 1 : 1 << 30);
    if (rank == 1) AwaitAbort(session);
    EXPECT_EQ(MV_TableGet(table, data, 3, MV_COLLECTIVE), MV_ERR_ABORTED);
    EXPECT_TRUE(LastErrorHas("enough"));
  });
}

TEST_F(PendingAdd, DoesNotEndTheSessionWhenInterrupted) {
  {
    const AbortsAfter once(1);
    EXPECT_EQ(MV_TableAdd(table_, data_.data(), 40000), MV_ERR_ABORTED);
  }
  lock_->Leave();
  EXPECT_EQ(MV_TableAdd(table_, data_.data(), 40000), MV_OK);
}

TEST(Interrupted, CallThatDoesNotWaitDoesNotAsk) {
  const MV_Session session = OpenAlone();
  const AbortsAfter once(1);
  const MV_Table table = CreateArray(session, 10);
  const std::vector<float> ones(10, 1);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(MV_TableAdd(table, ones.data(), 10), MV_OK);
  EXPECT_EQ(MV_SessionClose(session), MV_OK);
  EXPECT_EQ(once.left(), 1);
}

TEST(Interrupted, PendingCallAsksOnceTheFunctionIsSet) {
  RunApiJob(2, kSlice, kPatience, [](MV_Session session, int rank) {
    if (rank == 1) return AwaitAbort(session);
    ASSERT_EQ(MV_SessionBarrier(session), MV_PENDING);
    const AbortsAfter twice(2);
    EXPECT_EQ(MV_Wait(), MV_ERR_ABORTED);
    EXPECT_STREQ(MV_LastError(), "enough");
    EXPECT_EQ(MV_Wait(), MV_ERR_STATE);
  });
}

struct NestedCalls {
  MV_Session session;
  std::vector<int32_t> statuses;
};

const char* MakeCalls(void* argument) {
  auto* const nested = static_cast<NestedCalls*>(argument);
  nested->statuses = {MV_SessionBarrier(nested->session), MV_SessionLeave(nested->session, "no"),
                      MV_Cancel("no")};
  return "enough";
}

TEST(Interrupted, FunctionCannotMakeCallsItself) {
  RunApiJob(2, kNoSlice, kPatience, [](MV_Session session, int rank) {
    if (rank == 1) return AwaitAbort(session);
    NestedCalls nested{session, {}};
    MV_SetInterrupt(&MakeCalls, &nested);
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_ABORTED);
    MV_SetInterrupt(nullptr, nullptr);
    EXPECT_EQ(nested.statuses, std::vector<int32_t>(3, MV_ERR_STATE));
  });
}

}  // namespace
}  // namespace multiverso::testing
