// Calls that wait longer than the slice of their session are pending until they finish or are
// cancelled; threads with an interrupt function block.
#include "c_api/pending.h"

#include <gtest/gtest.h>

#include <thread>

#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso {
namespace {

using testing::CreateArray;
using testing::Eventually;
using testing::FirstLockOf;
using testing::kPatience;
using testing::LastErrorHas;
using testing::OpenAlone;
using testing::RunApiJob;
using testing::WaitToEnd;

constexpr auto kSlice = std::chrono::milliseconds(2);
constexpr auto kNoSlice = std::chrono::milliseconds(0);
// The timeout of sessions in which a wait is meant to reach it: long enough to open them.
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
    MV_TableOptions options;
    ASSERT_EQ(MV_TableOptionsInit(&options), MV_OK);
    options.num_row = 5;
    for (int round = 0; round < 5; ++round) {
      // In each round another rank is late.
      if (rank == round % 3) std::this_thread::sleep_for(3 * kSlice);
      MV_Table table = nullptr;
      ASSERT_EQ(WaitToEnd(MV_TableCreate(session, &options, &table)), MV_OK) << MV_LastError();
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
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return c_api::Using(session)->session->group()->IsAborted(); }));
      return;
    }
    ASSERT_EQ(MV_SessionBarrier(session), MV_PENDING);
    MV_Table table = nullptr;
    float value = 0;
    MV_TableOptions options;
    MV_TableOptionsInit(&options);
    MV_Session other = nullptr;
    const MV_SessionOptions session_options = testing::SessionOptionsOf();
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_STATE);
    EXPECT_TRUE(LastErrorHas("pending call")) << MV_LastError();
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
      // This rank knows that the session is aborted and closes it without an error.
      EXPECT_EQ(WaitToEnd(MV_SessionClose(session)), MV_OK) << MV_LastError();
      return;
    }
    EXPECT_TRUE(Eventually([&] { return c_api::Using(session)->session->group()->IsAborted(); }));
    EXPECT_EQ(WaitToEnd(MV_SessionBarrier(session)), MV_ERR_ABORTED);
    EXPECT_TRUE(LastErrorHas("rank 0 gave the session up: KeyboardInterrupt")) << MV_LastError();
  });
}

TEST(Pending, CallReachesItsDeadlineAcrossSlices) {
  RunApiJob(2, kSlice, kTimeout, [](MV_Session session, int rank) {
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return c_api::Using(session)->session->group()->IsAborted(); }));
      return;
    }
    ASSERT_EQ(MV_SessionBarrier(session), MV_PENDING);
    EXPECT_EQ(WaitToEnd(MV_PENDING), MV_ERR_TIMEOUT);
    EXPECT_TRUE(LastErrorHas("for rank 1")) << MV_LastError();
  });
}

TEST(Blocking, CallNeverReturnsPending) {
  RunApiJob(2, kNoSlice, kTimeout, [](MV_Session session, int rank) {
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return c_api::Using(session)->session->group()->IsAborted(); }));
      return;
    }
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_TIMEOUT);
    EXPECT_EQ(MV_Wait(), MV_ERR_STATE);
  });
}

TEST(Pending, AddContinuesWhenTheLockIsReleased) {
  const MV_Session session = OpenAlone(kSlice.count());
  const MV_Table table = CreateArray(session, 40000);
  RobustLock* const lock = FirstLockOf(table);
  std::vector<float> data(40000, 1);
  ASSERT_TRUE(lock->TryTake(0));
  ASSERT_EQ(MV_TableAddGet(table, data.data(), data.data(), 40000), MV_PENDING);
  ASSERT_EQ(MV_Wait(), MV_PENDING);
  lock->Leave();
  ASSERT_EQ(WaitToEnd(MV_PENDING), MV_OK) << MV_LastError();
  EXPECT_EQ(data, std::vector<float>(40000, 1));
  EXPECT_EQ(MV_SessionClose(session), MV_OK);
}

TEST(Pending, CancelledAddDoesNotEndTheSession) {
  const MV_Session session = OpenAlone(kSlice.count());
  const MV_Table table = CreateArray(session, 10);
  RobustLock* const lock = FirstLockOf(table);
  const std::vector<float> ones(10, 1);
  ASSERT_TRUE(lock->TryTake(0));
  ASSERT_EQ(MV_TableAdd(table, ones.data(), 10), MV_PENDING);
  ASSERT_EQ(MV_Cancel("not needed"), MV_OK);
  lock->Leave();
  EXPECT_EQ(MV_TableAdd(table, ones.data(), 10), MV_OK);
  float out[10] = {};
  EXPECT_EQ(MV_TableGet(table, out, 10, 0), MV_OK);
  EXPECT_EQ(out[9], 1);
  EXPECT_EQ(MV_SessionBarrier(session), MV_OK);
  EXPECT_EQ(MV_SessionClose(session), MV_OK);
}

TEST(Pending, LeavingCancelsTheCall) {
  RunApiJob(2, kSlice, kPatience, [](MV_Session session, int rank) {
    if (rank == 0) {
      ASSERT_EQ(MV_SessionBarrier(session), MV_PENDING);
      EXPECT_EQ(MV_SessionLeave(session, "ValueError"), MV_OK) << MV_LastError();
      EXPECT_EQ(MV_Wait(), MV_ERR_STATE);
      return;
    }
    EXPECT_TRUE(Eventually([&] { return c_api::Using(session)->session->group()->IsAborted(); }));
    EXPECT_EQ(WaitToEnd(MV_SessionBarrier(session)), MV_ERR_ABORTED);
    EXPECT_TRUE(LastErrorHas("ValueError")) << MV_LastError();
  });
}

TEST(Pending, EndOfTheThreadEndsTheCall) {
  const MV_Session session = OpenAlone(kSlice.count());
  const MV_Table table = CreateArray(session, 10);
  RobustLock* const lock = FirstLockOf(table);
  ASSERT_TRUE(lock->TryTake(0));
  std::thread([&] {
    const std::vector<float> ones(10, 1);
    EXPECT_EQ(MV_TableAdd(table, ones.data(), 10), MV_PENDING);
  }).join();
  lock->Leave();
  EXPECT_EQ(MV_SessionClose(session), MV_OK) << MV_LastError();
}

// ---- MV_SetInterrupt ----------------------------------------------------------------------------

const char* CountDown(void* argument) {
  return --*static_cast<int*>(argument) > 0 ? nullptr : "enough";
}

// While it lives, a wait of this thread is given up when it has asked that many times.
class GivesUpAfter {
 public:
  explicit GivesUpAfter(int times) : times_(times) { MV_SetInterrupt(&CountDown, &times_); }
  ~GivesUpAfter() { MV_SetInterrupt(nullptr, nullptr); }
  GivesUpAfter(const GivesUpAfter&) = delete;
  GivesUpAfter& operator=(const GivesUpAfter&) = delete;
  int left() const { return times_; }

 private:
  int times_;
};

TEST(Interrupted, CallEndsTheCallsOfTheOtherRanksWithItsReason) {
  for (const auto slice : {kNoSlice, kSlice}) {
    RunApiJob(2, slice, kPatience, [](MV_Session session, int rank) {
      if (rank == 0) {
        const GivesUpAfter twice(2);
        EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_ABORTED);
        EXPECT_STREQ(MV_LastError(), "enough");
        EXPECT_EQ(MV_Wait(), MV_ERR_STATE);
        EXPECT_EQ(MV_SessionClose(session), MV_OK) << MV_LastError();
        return;
      }
      EXPECT_TRUE(Eventually([&] { return c_api::Using(session)->session->group()->IsAborted(); }));
      EXPECT_EQ(WaitToEnd(MV_SessionBarrier(session)), MV_ERR_ABORTED);
      EXPECT_TRUE(LastErrorHas("rank 0 gave the session up: enough")) << MV_LastError();
    });
  }
}

TEST(Interrupted, CollectiveGetEndsTheSessionForAll) {
  RunApiJob(2, kNoSlice, kPatience, [](MV_Session session, int rank) {
    const MV_Table table = CreateArray(session, 3);
    float data[3] = {};
    const GivesUpAfter never(rank == 0 ? 1 : 1 << 30);
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return c_api::Using(session)->session->group()->IsAborted(); }));
    }
    EXPECT_EQ(MV_TableGet(table, data, 3, MV_COLLECTIVE), MV_ERR_ABORTED);
    EXPECT_TRUE(LastErrorHas("enough")) << MV_LastError();
  });
}

TEST(Interrupted, AddDoesNotEndTheSession) {
  const MV_Session session = OpenAlone();
  const MV_Table table = CreateArray(session, 10);
  RobustLock* const lock = FirstLockOf(table);
  const std::vector<float> ones(10, 1);
  ASSERT_TRUE(lock->TryTake(0));
  {
    const GivesUpAfter once(1);
    EXPECT_EQ(MV_TableAdd(table, ones.data(), 10), MV_ERR_ABORTED);
  }
  lock->Leave();
  EXPECT_EQ(MV_TableAdd(table, ones.data(), 10), MV_OK);
  EXPECT_EQ(MV_SessionClose(session), MV_OK);
}

TEST(Interrupted, CallThatDoesNotWaitDoesNotAsk) {
  const MV_Session session = OpenAlone();
  const GivesUpAfter once(1);
  const MV_Table table = CreateArray(session, 10);
  const std::vector<float> ones(10, 1);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(MV_TableAdd(table, ones.data(), 10), MV_OK);
  EXPECT_EQ(MV_SessionClose(session), MV_OK);
  EXPECT_EQ(once.left(), 1);
}

TEST(Interrupted, PendingCallAsksOnceTheFunctionIsSet) {
  RunApiJob(2, kSlice, kPatience, [](MV_Session session, int rank) {
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return c_api::Using(session)->session->group()->IsAborted(); }));
      return;
    }
    ASSERT_EQ(MV_SessionBarrier(session), MV_PENDING);
    const GivesUpAfter twice(2);
    EXPECT_EQ(MV_Wait(), MV_ERR_ABORTED);
    EXPECT_STREQ(MV_LastError(), "enough");
    EXPECT_EQ(MV_Wait(), MV_ERR_STATE);
  });
}

struct Nested {
  MV_Session session;
  std::vector<int32_t> statuses;
};

const char* CallBack(void* argument) {
  auto* const nested = static_cast<Nested*>(argument);
  nested->statuses = {MV_SessionBarrier(nested->session), MV_SessionLeave(nested->session, "no"),
                      MV_Cancel("no")};
  return "enough";
}

TEST(Interrupted, FunctionCannotMakeCallsItself) {
  RunApiJob(2, kNoSlice, kPatience, [](MV_Session session, int rank) {
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return c_api::Using(session)->session->group()->IsAborted(); }));
      return;
    }
    Nested nested{session, {}};
    MV_SetInterrupt(&CallBack, &nested);
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_ABORTED);
    MV_SetInterrupt(nullptr, nullptr);
    EXPECT_EQ(nested.statuses, std::vector<int32_t>(3, MV_ERR_STATE));
  });
}

}  // namespace
}  // namespace multiverso
