#include <gtest/gtest.h>

#include <vector>

#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso {
namespace {

using testing::CreateArray;
using testing::CreateMatrix;
using testing::FirstLockOf;
using testing::LastErrorHas;
using testing::OpenAlone;

constexpr int64_t kCounts[] = {2, 3};
constexpr float kZeros[6] = {};

TEST(ParamSyncApi, AddsTheGainOfTheTensorsAndSetsThemToTheTable) {
  const MV_Session session = OpenAlone();
  const MV_Table table = CreateArray(session, 5);
  MV_ParamSync sync = nullptr;
  ASSERT_EQ(MV_ParamSyncCreate(table, kCounts, 2, kZeros, &sync), MV_OK) << MV_LastError();
  float a[] = {1, 2};
  float b[] = {3, 4, 5};
  void* const tensors[] = {a, b};
  const float others[] = {10, 10, 10, 10, 10};
  ASSERT_EQ(MV_TableAdd(table, others, 5), MV_OK);
  ASSERT_EQ(MV_ParamSyncRun(sync, tensors, 2), MV_OK) << MV_LastError();
  EXPECT_EQ(a[1], 12);
  EXPECT_EQ(b[2], 15);
  // Without a gain nothing is added.
  ASSERT_EQ(MV_ParamSyncRun(sync, tensors, 2), MV_OK);
  float out[5];
  ASSERT_EQ(MV_TableGet(table, out, 5, 0), MV_OK);
  EXPECT_EQ(std::vector<float>(out, out + 5), (std::vector<float>{11, 12, 13, 14, 15}));
  EXPECT_EQ(MV_ParamSyncFree(sync), MV_OK);
  EXPECT_EQ(MV_SessionClose(session), MV_OK);
}

TEST(ParamSyncApi, FillsAMatrixRowByRow) {
  const MV_Session session = OpenAlone();
  const MV_Table table = CreateMatrix(session, 2, 3);
  const int64_t counts[] = {6};
  MV_ParamSync sync = nullptr;
  ASSERT_EQ(MV_ParamSyncCreate(table, counts, 1, kZeros, &sync), MV_OK) << MV_LastError();
  float a[] = {1, 2, 3, 4, 5, 6};
  void* const tensors[] = {a};
  ASSERT_EQ(MV_ParamSyncRun(sync, tensors, 1), MV_OK);
  const int64_t row = 1;
  float out[3];
  ASSERT_EQ(MV_TableGetRows(table, &row, 1, out, 3, 0), MV_OK);
  EXPECT_EQ(out[2], 6);
  EXPECT_EQ(MV_ParamSyncFree(sync), MV_OK);
  EXPECT_EQ(MV_SessionClose(session), MV_OK);
}

TEST(ParamSyncApi, RefusesWrongArguments) {
  const MV_Session session = OpenAlone();
  const MV_Table table = CreateArray(session, 5);
  MV_ParamSync sync = nullptr;
  EXPECT_EQ(MV_ParamSyncCreate(table, kCounts, 1, kZeros, &sync), MV_ERR_VALUE);
  EXPECT_TRUE(LastErrorHas("the tensors have 2"));
  EXPECT_EQ(MV_ParamSyncCreate(table, kCounts, 2, kZeros, nullptr), MV_ERR_VALUE);
  EXPECT_EQ(MV_ParamSyncCreate(nullptr, kCounts, 2, kZeros, &sync), MV_ERR_HANDLE);
  EXPECT_EQ(sync, nullptr);
  ASSERT_EQ(MV_ParamSyncCreate(table, kCounts, 2, kZeros, &sync), MV_OK);
  EXPECT_EQ(MV_ParamSyncRun(sync, nullptr, 2), MV_ERR_VALUE);
  EXPECT_EQ(MV_ParamSyncRun(nullptr, nullptr, 2), MV_ERR_HANDLE);
  EXPECT_EQ(MV_ParamSyncFree(sync), MV_OK);
  EXPECT_EQ(MV_ParamSyncFree(sync), MV_ERR_HANDLE);
  EXPECT_EQ(MV_SessionClose(session), MV_OK);
}

TEST(ParamSyncApi, OutlivesItsTable) {
  const MV_Session session = OpenAlone();
  const MV_Table table = CreateArray(session, 5);
  MV_ParamSync sync = nullptr;
  ASSERT_EQ(MV_ParamSyncCreate(table, kCounts, 2, kZeros, &sync), MV_OK);
  ASSERT_EQ(MV_TableFree(table), MV_OK);
  float a[5] = {};
  void* const tensors[] = {a, a + 2};
  EXPECT_EQ(MV_ParamSyncRun(sync, tensors, 2), MV_ERR_HANDLE);
  EXPECT_TRUE(LastErrorHas("table"));
  EXPECT_EQ(MV_SessionClose(session), MV_OK);
  EXPECT_EQ(MV_ParamSyncFree(sync), MV_OK);
}

TEST(ParamSyncApi, IsPendingWhileALockIsHeldAndThenResumes) {
  const MV_Session session = OpenAlone(/*wait_slice_ms=*/1);
  const MV_Table table = CreateArray(session, 5);
  MV_ParamSync sync = nullptr;
  ASSERT_EQ(MV_ParamSyncCreate(table, kCounts, 2, kZeros, &sync), MV_OK);
  float a[] = {1, 1};
  float b[] = {1, 1, 1};
  void* const tensors[] = {a, b};
  RobustLock* const lock = FirstLockOf(table);
  ASSERT_TRUE(lock->TryTake(0));
  ASSERT_EQ(MV_ParamSyncRun(sync, tensors, 2), MV_PENDING);
  EXPECT_EQ(MV_ParamSyncFree(sync), MV_ERR_STATE);
  ASSERT_EQ(MV_Cancel("tired"), MV_OK);
  EXPECT_EQ(b[2], 1);
  ASSERT_EQ(MV_ParamSyncRun(sync, tensors, 2), MV_PENDING);
  lock->Leave();
  int32_t status = MV_PENDING;
  while (status == MV_PENDING) status = MV_Wait();
  ASSERT_EQ(status, MV_OK) << MV_LastError();
  float out[5];
  ASSERT_EQ(MV_TableGet(table, out, 5, 0), MV_OK);
  EXPECT_EQ(out[4], 1);
  EXPECT_EQ(MV_ParamSyncFree(sync), MV_OK);
  EXPECT_EQ(MV_SessionClose(session), MV_OK);
}

}  // namespace
}  // namespace multiverso
