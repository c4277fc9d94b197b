// Calls on tables: which ones need one thread at a time, and what they record.
#include "c_api/table_call.h"

#include <gtest/gtest.h>

#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso::testing {
namespace {

class TableCalls : public ::testing::TestWithParam<int32_t> {
 protected:
  TableCalls() {
    MV_SessionOptions options = SessionOptionsOf();
    options.mode = GetParam();
    options.staleness = 1;
    EXPECT_EQ(MV_SessionOpen(&options, &session_), MV_OK) << MV_LastError();
    MV_TableOptions keyed = ArrayOptions(0);
    keyed.kind = MV_TABLE_HASH;
    keyed.capacity = 10;
    keyed.initializer = MV_INITIALIZER_ZEROS;
    keyed_ = CreateTable(session_, keyed);
    array_ = CreateArray(session_, 1);
  }
  ~TableCalls() override { EXPECT_EQ(MV_SessionClose(session_), MV_OK) << MV_LastError(); }

  static FlightRecorder::Traffic* TrafficOf(MV_Table table) {
    const c_api::TableUse use = c_api::OpenTables().Using(table);
    return &use->table->context()->memory()->recorder()->traffic[use->table->id()];
  }

  MV_Session session_ = nullptr;
  MV_Table keyed_ = nullptr;
  MV_Table array_ = nullptr;
  float one_ = 1;
  float out_ = 0;
};

// Stands for a call of another thread on a table.
class InCall {
 public:
  explicit InCall(MV_Table table)
      : use_(c_api::OpenTables().Using(table)), guard_(&use_->in_round_call) {}

 private:
  c_api::TableUse use_;
  c_api::CallGuard guard_;
};

TEST_P(TableCalls, OutsideRoundsAreMadeWhileAnotherThreadTrains) {
  const InCall keyed_call(keyed_);
  const InCall array_call(array_);
  const bool is_async = GetParam() == MV_MODE_ASYNC;
  EXPECT_EQ(MV_TableAdd(array_, &one_, 1), is_async ? MV_OK : MV_ERR_STATE);
  const int64_t key = 7;
  int64_t row = 0;
  int64_t counts[MV_KEY_COUNTS] = {};
  EXPECT_EQ(MV_TableRun(keyed_, "fetch_keys", &key, 1, nullptr, &out_, 1, 0),
            is_async ? MV_OK : MV_ERR_STATE);
  EXPECT_EQ(MV_TableKeyCounts(keyed_, counts), MV_OK) << MV_LastError();
  EXPECT_EQ(MV_TableRun(keyed_, "find_keys", &key, 1, nullptr, &row, 1, 0), MV_OK)
      << MV_LastError();
  EXPECT_EQ(MV_TableRun(keyed_, "remove_keys", &key, 1, nullptr, nullptr, 0, 0), MV_OK)
      << MV_LastError();
  MV_Future future = nullptr;
  EXPECT_EQ(MV_TableStart(keyed_, "find_keys", &key, 1, nullptr, &row, 1, &future), MV_OK)
      << MV_LastError();
  EXPECT_EQ(MV_TableFlush(keyed_, -1), MV_OK) << MV_LastError();
  EXPECT_EQ(MV_FutureRelease(future), MV_OK);
  if (GetParam() == MV_MODE_SYNC) return;
  EXPECT_EQ(MV_TableFetchAdd(array_, 0, 0, &one_, &out_), MV_OK) << MV_LastError();
  EXPECT_EQ(MV_TableCompareSwap(array_, 0, 0, &one_, &one_, &out_), MV_OK) << MV_LastError();
  EXPECT_EQ(MV_TableGet(array_, &out_, 1, MV_PEEK), MV_OK) << MV_LastError();
  int64_t ranges[2] = {};
  int64_t num_ranges = 0;
  int64_t version = 0;
  EXPECT_EQ(MV_TableListChanges(array_, 0, ranges, &num_ranges, &version), MV_OK) << MV_LastError();
}

TEST_P(TableCalls, OutsideRoundsEndNoSessionWhenTheyAreAborted) {
  if (GetParam() == MV_MODE_SYNC) return;  // It has no fetch_add.
  RobustLock* const lock = FirstLockOf(array_);
  ASSERT_TRUE(lock->TryTake(0));
  MV_SetInterrupt([](void*) { return "enough"; }, nullptr);
  EXPECT_EQ(MV_TableFetchAdd(array_, 0, 0, &one_, &out_), MV_ERR_ABORTED);
  MV_SetInterrupt(nullptr, nullptr);
  lock->Release();
  EXPECT_EQ(MV_SessionBarrier(session_), MV_OK) << MV_LastError();
}

TEST_P(TableCalls, CountAnAddThroughTheDeltaBufferOnce) {
  void* buffer = nullptr;
  ASSERT_EQ(MV_TableDeltaBuffer(array_, &buffer), MV_OK) << MV_LastError();
  EXPECT_EQ(TrafficOf(array_)->adds.load(), 0U);
  ASSERT_EQ(MV_TableAdd(array_, buffer == nullptr ? &one_ : buffer, 1), MV_OK) << MV_LastError();
  EXPECT_EQ(TrafficOf(array_)->adds.load(), 1U);
  EXPECT_EQ(TrafficOf(array_)->bytes_added.load(), sizeof(float));
}

TEST_P(TableCalls, ListChangesOnlySinceAVersionThatTheyCanHaveReturned) {
  int64_t ranges[2] = {};
  int64_t num_ranges = 0;
  int64_t version = 0;
  const auto list = [&](int64_t since) {
    return MV_TableListChanges(array_, since, ranges, &num_ranges, &version);
  };
  for (const int64_t since : {int64_t{-1}, INT64_MAX, INT64_MAX - 1}) {
    EXPECT_EQ(list(since), MV_ERR_VALUE) << since;
    EXPECT_TRUE(LastErrorHas("since: expected"));
  }
  ASSERT_EQ(list(0), MV_OK) << MV_LastError();
  const int64_t first = version;
  ASSERT_EQ(list(first), MV_OK) << MV_LastError();
  EXPECT_GT(version, first);
  EXPECT_LT(version, int64_t{1} << 62);
}

INSTANTIATE_TEST_SUITE_P(InEachMode, TableCalls,
                         ::testing::Values(MV_MODE_ASYNC, MV_MODE_SYNC, MV_MODE_STALE));

}  // namespace
}  // namespace multiverso::testing
