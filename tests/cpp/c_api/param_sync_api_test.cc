// MV_ParamSync...: synchronization of a model's tensors with a table.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso::testing {
namespace {

constexpr int64_t kCounts[] = {2, 3};
constexpr float kZeros[6] = {};

class ParamSyncApi : public AloneTest {
 protected:
  static MV_ParamSync Create(MV_Table table, const int64_t* counts = kCounts, int64_t tensors = 2) {
    MV_ParamSync sync = nullptr;
    EXPECT_EQ(MV_ParamSyncCreate(table, counts, tensors, kZeros, &sync), MV_OK) << MV_LastError();
    return sync;
  }

  MV_Table table_ = CreateArray(session_, 5);
};

const char* Tired(void* /*argument*/) { return "tired"; }

TEST_F(ParamSyncApi, DoesTheRestAfterAnAbortedCall) {
  const MV_ParamSync sync = Create(table_);
  float a[] = {1, 1};
  float b[] = {1, 1, 1};
  void* const tensors[] = {a, b};
  RobustLock* const lock = FirstLockOf(table_);
  ASSERT_TRUE(lock->TryTake(0));
  MV_SetInterrupt(&Tired, nullptr);
  EXPECT_EQ(MV_ParamSyncRun(sync, tensors, 2), MV_ERR_ABORTED);
  MV_SetInterrupt(nullptr, nullptr);
  EXPECT_EQ(b[2], 1);
  lock->Release();
  ASSERT_EQ(MV_ParamSyncRun(sync, tensors, 2), MV_OK) << MV_LastError();
  float out[5];
  ASSERT_EQ(MV_TableGet(table_, out, 5, 0), MV_OK);
  EXPECT_EQ(out[4], 1);
  EXPECT_EQ(MV_ParamSyncFree(sync), MV_OK);
}

TEST_F(ParamSyncApi, RunsInTheBackground) {
  const MV_ParamSync sync = Create(table_);
  float a[] = {1, 2};
  float b[] = {3, 4, 5};
  RobustLock* const lock = FirstLockOf(table_);
  ASSERT_TRUE(lock->TryTake(0));
  MV_Future future = nullptr;
  {
    void* const tensors[] = {a, b};
    ASSERT_EQ(MV_ParamSyncStart(sync, tensors, 2, &future), MV_OK) << MV_LastError();
    EXPECT_EQ(MV_ParamSyncRun(sync, tensors, 2), MV_ERR_STATE);
    EXPECT_TRUE(LastErrorHas("another thread"));
    EXPECT_EQ(MV_ParamSyncSetScale(sync, 0.5), MV_ERR_STATE);
    EXPECT_TRUE(LastErrorHas("at a sync of the same parameters"));
  }
  int32_t done = -1;
  ASSERT_EQ(MV_FutureDone(future, &done), MV_OK);
  EXPECT_EQ(done, 0);
  lock->Release();
  // A get comes after the sync, as after other calls in the background.
  float out[5];
  ASSERT_EQ(MV_TableGet(table_, out, 5, 0), MV_OK);
  EXPECT_EQ(std::vector<float>(out, out + 5), (std::vector<float>{1, 2, 3, 4, 5}));
  ASSERT_EQ(MV_FutureWait(future, -1, &done), MV_OK) << MV_LastError();
  EXPECT_EQ(done, 1);
  EXPECT_EQ(MV_FutureRelease(future), MV_OK);
  EXPECT_EQ(MV_ParamSyncRun(sync, nullptr, 2), MV_ERR_VALUE);
  EXPECT_EQ(MV_ParamSyncStart(sync, nullptr, 2, &future), MV_ERR_VALUE);
  void* const two_tensors[] = {a, b};
  EXPECT_EQ(MV_ParamSyncStart(sync, two_tensors, int64_t{1} << 50, &future), MV_ERR_VALUE);
  EXPECT_EQ(MV_ParamSyncStart(sync, nullptr, 2, nullptr), MV_ERR_VALUE);
  EXPECT_EQ(MV_ParamSyncFree(sync), MV_OK);
  EXPECT_EQ(MV_ParamSyncStart(sync, nullptr, 2, &future), MV_ERR_HANDLE);
}

TEST(AddChange, WrapsIntegersAroundAndRejectsInvalidArguments) {
  int32_t values[] = {1, INT32_MAX};
  const int32_t current[] = {5, 2};
  int32_t before[] = {3, 1};
  ASSERT_EQ(MV_AddChange(MV_INT32, 2, 1, values, current, before, values, nullptr), MV_OK);
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(values[1], INT32_MIN);
  EXPECT_EQ(before[1], 2);
  float one[] = {1};
  EXPECT_EQ(MV_AddChange(MV_FLOAT16, 1, 1, one, one, one, one, nullptr), MV_ERR_TYPE);
  EXPECT_EQ(MV_AddChange(MV_FLOAT32, -1, 1, one, one, one, one, nullptr), MV_ERR_VALUE);
  EXPECT_EQ(MV_AddChange(MV_FLOAT32, 1, 1, one, nullptr, one, one, nullptr), MV_ERR_VALUE);
}

}  // namespace
}  // namespace multiverso::testing
