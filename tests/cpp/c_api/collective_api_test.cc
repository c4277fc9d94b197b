// MV_SessionRun and MV_SessionStart: arguments, order, failures, and the end of a session whose
// calls are in flight.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso::testing {
namespace {

using Floats = std::vector<float>;

// A call on arrays of floats.
class Collective {
 public:
  Collective(int32_t kind, const std::vector<const Floats*>& sent,
             const std::vector<Floats*>& received, int32_t root = 0) {
    call_ = {sizeof(call_), kind, MV_OP_SUM, MV_FLOAT32, root, nullptr, nullptr, nullptr, nullptr};
    for (const Floats* const array : sent) {
      sent_.push_back(array->data());
      sent_counts_.push_back(static_cast<int64_t>(array->size()));
    }
    for (Floats* const array : received) {
      received_.push_back(array->data());
      received_counts_.push_back(static_cast<int64_t>(array->size()));
    }
    call_.sent = sent_.data();
    call_.sent_counts = sent_counts_.data();
    call_.received = received_.data();
    call_.received_counts = received_counts_.data();
  }
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  MV_CollectiveCall* get() { return &call_; }
  int64_t* sent_counts() { return sent_counts_.data(); }
  void** received() { return received_.data(); }
  int64_t* received_counts() { return received_counts_.data(); }

 private:
  MV_CollectiveCall call_;
  std::vector<const void*> sent_;
  std::vector<int64_t> sent_counts_;
  std::vector<void*> received_;
  std::vector<int64_t> received_counts_;
};

MV_Future Start(MV_Session session, Collective* call) {
  MV_Future future = nullptr;
  EXPECT_EQ(MV_SessionStart(session, call->get(), &future), MV_OK) << MV_LastError();
  return future;
}

// Starts the sum of an array in the background, in place.
MV_Future StartSum(MV_Session session, Floats* array) {
  Collective call(MV_CALL_AGGREGATE, {}, {array});
  return Start(session, &call);
}

// Waits for the call, releases the future, and returns the result of the call.
int32_t ResultOf(MV_Future future) {
  int32_t done = 0;
  const int32_t status = MV_FutureWait(future, -1, &done);
  EXPECT_EQ(done, 1);
  const std::string error = MV_LastError();
  EXPECT_EQ(MV_FutureRelease(future), MV_OK);
  return status;
}

using CollectiveApi = AloneTest;

TEST_F(CollectiveApi, RejectsInvalidArguments) {
  Floats one(3, 1);
  Floats other(3);
  const auto expect = [&](int32_t kind, int32_t code, const char* text, auto change) {
    Collective call(kind, {&one}, {&other});
    change(&call);
    EXPECT_EQ(MV_SessionRun(session_, call.get()), code) << text;
    EXPECT_TRUE(LastErrorHas(text));
    MV_Future future = nullptr;
    EXPECT_EQ(MV_SessionStart(session_, call.get(), &future), code) << text;
    EXPECT_TRUE(LastErrorHas(text));
    EXPECT_EQ(future, nullptr);
  };
  for (int32_t kind = MV_CALL_BARRIER; kind <= MV_CALL_REDUCE_SCATTER; ++kind) {
    expect(kind, MV_ERR_VALUE, "struct_size", [](auto* call) { call->get()->struct_size -= 8; });
    if (kind == MV_CALL_BARRIER) continue;
    expect(kind, MV_ERR_TYPE, "dtype from 0 to 9", [](auto* call) { call->get()->dtype = 10; });
    expect(kind, MV_ERR_TYPE, "received -1", [](auto* call) { call->get()->dtype = -1; });
    expect(kind, MV_ERR_VALUE, "received null",
           [](auto* call) { call->get()->received = nullptr; });
    expect(kind, MV_ERR_VALUE, "received null",
           [](auto* call) { call->get()->received_counts = nullptr; });
    expect(kind, MV_ERR_VALUE, "received 3 and no buffer",
           [](auto* call) { call->received()[0] = nullptr; });
    expect(kind, MV_ERR_VALUE, "received -1", [](auto* call) { call->received_counts()[0] = -1; });
    if (kind <= MV_CALL_BROADCAST) continue;
    expect(kind, MV_ERR_VALUE, "received null", [](auto* call) { call->get()->sent = nullptr; });
    expect(kind, MV_ERR_VALUE, "received -7", [](auto* call) { call->sent_counts()[0] = -7; });
  }
  for (const int32_t kind : {MV_CALL_AGGREGATE, MV_CALL_REDUCE_SCATTER}) {
    expect(kind, MV_ERR_VALUE, "op from 0 to 7", [](auto* call) { call->get()->op = 8; });
    expect(kind, MV_ERR_TYPE, "needs integers", [](auto* call) { call->get()->op = MV_OP_XOR; });
  }
  for (const int32_t root : {-1, 1}) {
    expect(MV_CALL_BROADCAST, MV_ERR_VALUE, "root from 0 to 0",
           [&](auto* call) { call->get()->root = root; });
  }
  for (const int32_t kind : {-1, 6}) {
    expect(kind, MV_ERR_VALUE, "MV_CollectiveCall.kind", [](auto* /*call*/) {});
  }
}

TEST_F(CollectiveApi, RejectsNullAndHandlesThatAreNotOpen) {
  Floats array(3, 1);
  Collective call(MV_CALL_AGGREGATE, {}, {&array});
  MV_Future future = nullptr;
  EXPECT_EQ(MV_SessionRun(session_, nullptr), MV_ERR_VALUE);
  EXPECT_EQ(MV_SessionStart(session_, nullptr, &future), MV_ERR_VALUE);
  EXPECT_EQ(MV_SessionStart(session_, call.get(), nullptr), MV_ERR_VALUE);
  EXPECT_EQ(MV_SessionRun(nullptr, call.get()), MV_ERR_HANDLE);
  EXPECT_EQ(MV_SessionStart(nullptr, call.get(), &future), MV_ERR_HANDLE);
  EXPECT_EQ(future, nullptr);
}

TEST(CollectiveCalls, OfEveryKindRunInTheOrderInWhichTheyWereStarted) {
  RunApiJob(2, kPatience, [](MV_Session session, int me) {
    const auto mine = static_cast<float>(me);
    for (const bool in_background : {false, true}) {
      Floats sum = {1, mine};
      Floats sum_of_other = {8, 9};
      Floats all[2] = {Floats(2), Floats(2)};
      Floats exchanged[2] = {Floats(2), Floats(2)};
      Floats part(2);
      // Each call needs the results of the calls before it.
      Collective calls[] = {{MV_CALL_AGGREGATE, {}, {&sum}},
                            {MV_CALL_BARRIER, {}, {}},
                            {MV_CALL_ALL_GATHER, {&sum}, {&all[0], &all[1]}},
                            {MV_CALL_BROADCAST, {}, {me == 1 ? &all[0] : &sum_of_other}, 1},
                            {MV_CALL_ALL_TO_ALL,
                             {me == 1 ? &part : &sum_of_other, &all[1]},
                             {&exchanged[0], &exchanged[1]}},
                            {MV_CALL_REDUCE_SCATTER, {&exchanged[1], &all[0]}, {&part}}};
      std::vector<MV_Future> futures;
      for (Collective& call : calls) {
        if (in_background) {
          futures.push_back(Start(session, &call));
        } else {
          EXPECT_EQ(MV_SessionRun(session, call.get()), MV_OK) << MV_LastError();
        }
      }
      EXPECT_EQ(MV_SessionBarrier(session), MV_OK) << MV_LastError();
      EXPECT_EQ(sum, Floats({2, 1}));
      EXPECT_EQ(sum_of_other, me == 1 ? Floats({8, 9}) : Floats({2, 1}));
      EXPECT_EQ(exchanged[1], me == 1 ? Floats({2, 1}) : Floats({0, 0}));
      EXPECT_EQ(part, me == 1 ? Floats({4, 2}) : Floats({2, 1}));
      for (const MV_Future future : futures) EXPECT_EQ(ResultOf(future), MV_OK);
    }
    EXPECT_EQ(MV_SessionClose(session), MV_OK) << MV_LastError();
  });
}

// Makes `call` on two ranks, each of which has a sum in the background. That of rank 0 does not end
// before rank 0 waits in `call`, or has left it.
template <class Call>
void ExpectToWaitForTheBackground(const Call& call) {
  std::atomic<bool> is_waiting{false};
  RunApiJob(2, kPatience, [&](MV_Session session, int rank) {
    const MV_Table table = CreateArray(session, 1);
    Floats sums[2] = {{1}, {1}};
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return is_waiting.load(); }));
    }
    MV_Future futures[2] = {StartSum(session, &sums[0]), StartSum(session, &sums[1])};
    const auto note = [](void* flag) -> const char* {
      static_cast<std::atomic<bool>*>(flag)->store(true);
      return nullptr;
    };
    if (rank == 0) MV_SetInterrupt(note, &is_waiting);
    EXPECT_EQ(call(session, table), MV_OK) << MV_LastError();
    MV_SetInterrupt(nullptr, nullptr);
    is_waiting.store(true);
    EXPECT_EQ(sums[1], Floats({2}));
    for (const MV_Future future : futures) EXPECT_EQ(ResultOf(future), MV_OK) << MV_LastError();
  });
}

TEST(CollectiveCalls, WaitForThoseInTheBackground) {
  ExpectToWaitForTheBackground(
      [](MV_Session session, MV_Table /*table*/) { return MV_SessionBarrier(session); });
  ExpectToWaitForTheBackground([](MV_Session session, MV_Table /*table*/) {
    Floats sum = {1};
    return MV_SessionAggregate(session, MV_OP_SUM, MV_FLOAT32, sum.data(), 1);
  });
  ExpectToWaitForTheBackground([](MV_Session session, MV_Table /*table*/) {
    return CreateArray(session, 1) == nullptr ? MV_ERR_STATE : MV_OK;
  });
  ExpectToWaitForTheBackground([](MV_Session /*session*/, MV_Table table) {
    float value = 0;
    return MV_TableGet(table, &value, 1, MV_COLLECTIVE);
  });
  ExpectToWaitForTheBackground(
      [](MV_Session session, MV_Table /*table*/) { return MV_SessionFlush(session, -1); });
  // The futures outlive the session.
  ExpectToWaitForTheBackground(
      [](MV_Session session, MV_Table /*table*/) { return MV_SessionClose(session); });
}

// Starts a sum whose sizes differ, and then another sum.
MV_Future StartMismatch(MV_Session session, int rank) {
  Floats failing(rank == 0 ? 1 : 2);
  Floats sum = {1};
  const MV_Future failed = StartSum(session, &failing);
  EXPECT_EQ(ResultOf(StartSum(session, &sum)), MV_OK) << MV_LastError();
  EXPECT_EQ(sum, Floats({2}));
  return failed;
}

TEST(CollectiveInTheBackground, ReportsItsFailureOnceInTheFutureOrTheNextFlushOrTheClose) {
  RunApiJob(2, kPatience, [](MV_Session session, int rank) {
    EXPECT_EQ(ResultOf(StartMismatch(session, rank)), MV_ERR_MISMATCH);
    EXPECT_EQ(MV_SessionFlush(session, -1), MV_OK) << MV_LastError();
    EXPECT_EQ(MV_FutureRelease(StartMismatch(session, rank)), MV_OK);
    EXPECT_EQ(MV_SessionFlush(session, -1), MV_ERR_MISMATCH);
    EXPECT_TRUE(LastErrorHas("rank 0 called aggregate of 1 float32, rank 1 of 2 float32"));
    EXPECT_EQ(MV_SessionFlush(session, -1), MV_OK) << MV_LastError();
    EXPECT_EQ(MV_FutureRelease(StartMismatch(session, rank)), MV_OK);
    EXPECT_EQ(MV_SessionBarrier(session), MV_OK) << MV_LastError();
    EXPECT_EQ(MV_SessionClose(session), MV_ERR_MISMATCH);
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_HANDLE);
  });
}

TEST(CollectiveInTheBackground, OfAMissingRankEndsAtTheDeadlineAlsoInAClose) {
  RunApiJob(2, std::chrono::milliseconds(300), [](MV_Session session, int rank) {
    if (rank == 1) return AwaitAbort(session);
    Floats sums[2] = {{1}, {1}};
    MV_Future futures[2] = {StartSum(session, &sums[0]), StartSum(session, &sums[1])};
    EXPECT_EQ(MV_SessionClose(session), MV_ERR_TIMEOUT);
    EXPECT_TRUE(LastErrorHas("in aggregate for rank 1"));
    EXPECT_EQ(ResultOf(futures[0]), MV_ERR_TIMEOUT);
    EXPECT_NE(ResultOf(futures[1]), MV_OK);
  });
}

TEST(CollectiveInTheBackground, EndsWhenTheCallerAbortsACallThatWaitsForIt) {
  for (const bool closes : {false, true}) {
    RunApiJob(2, kPatience, [&](MV_Session session, int rank) {
      if (rank == 1) return AwaitAbort(session);
      Floats sum = {1};
      const MV_Future future = StartSum(session, &sum);
      MV_SetInterrupt([](void*) { return "enough"; }, nullptr);
      EXPECT_EQ(closes ? MV_SessionClose(session) : MV_SessionBarrier(session), MV_ERR_ABORTED);
      EXPECT_TRUE(LastErrorHas("enough"));
      MV_SetInterrupt(nullptr, nullptr);
      EXPECT_EQ(ResultOf(future), MV_ERR_ABORTED);
      if (closes) {
        EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_HANDLE);
      }
    });
  }
}

TEST(CollectiveInTheBackground, OfARankThatLeavesEndsWithoutAbortingTheSession) {
  std::atomic<bool> has_left{false};
  RunApiJob(2, kPatience, [&](MV_Session session, int rank) {
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return has_left.load(); }));
      // Rank 0 has begun the first sum.
      Floats sum = {1};
      EXPECT_EQ(ResultOf(StartSum(session, &sum)), MV_OK) << MV_LastError();
      EXPECT_EQ(sum, Floats({2}));
      EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_PEER_LOST);
      EXPECT_TRUE(LastErrorHas("it has had enough"));
      return;
    }
    Floats sums[2] = {{1}, {1}};
    MV_Future futures[2] = {StartSum(session, &sums[0]), StartSum(session, &sums[1])};
    EXPECT_TRUE(Eventually(
        [&] { return c_api::OpenSessions().Using(session)->in_collective_call.load(); }));
    EXPECT_EQ(MV_SessionLeave(session, "it has had enough"), MV_OK) << MV_LastError();
    has_left.store(true);
    for (const MV_Future future : futures) EXPECT_EQ(ResultOf(future), MV_ERR_ABORTED);
  });
}

}  // namespace
}  // namespace multiverso::testing
