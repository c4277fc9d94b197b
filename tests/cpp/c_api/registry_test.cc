// A forked child cannot use the sessions of its parent, and the child's attempts do no harm there.
#include "c_api/registry.h"

#include <gtest/gtest.h>

#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso::testing {
namespace {

// Returns the number of the first call that did not fail as it should, or 0.
int TryEverything(MV_Session session, MV_Table table) {
  float data[3] = {};
  const int64_t id = 0;
  MV_SessionDescription description{};
  description.struct_size = sizeof(description);
  const MV_SessionOptions options = SessionOptionsOf();
  MV_Session new_session = nullptr;
  if (MV_TableGet(table, data, 3, 0) != MV_ERR_FORKED) return 1;
  if (MV_TableAdd(table, data, 3) != MV_ERR_FORKED) return 2;
  if (MV_TableAddGet(table, data, data, 3) != MV_ERR_FORKED) return 3;
  if (MV_TableGetRows(table, &id, 1, data, 1, 0) != MV_ERR_FORKED) return 4;
  if (MV_TableGet(table, data, 3, MV_COLLECTIVE) != MV_ERR_FORKED) return 5;
  if (MV_TableSetHyper(table, 0, 1) != MV_ERR_FORKED) return 6;
  if (MV_SessionBarrier(session) != MV_ERR_FORKED) return 7;
  if (MV_SessionDescribe(session, &description) != MV_ERR_FORKED) return 8;
  if (MV_TableFree(table) != MV_ERR_FORKED) return 9;
  if (MV_SessionClose(session) != MV_ERR_FORKED) return 10;
  if (MV_SessionLeave(session, "child") != MV_ERR_FORKED) return 11;
  if (MV_SessionOpen(&options, &new_session) != MV_ERR_FORKED) return 12;
  if (!LastErrorHas("forked")) return 13;
  return 0;
}

void ExpectWorking(MV_Session session, MV_Table table, float expected) {
  const float ones[] = {1, 1, 1};
  float out[3] = {};
  EXPECT_EQ(MV_TableAddGet(table, ones, out, 3), MV_OK) << MV_LastError();
  EXPECT_EQ(out[2], expected);
  EXPECT_EQ(MV_SessionBarrier(session), MV_OK) << MV_LastError();
}

class Fork : public AloneTest {
 protected:
  Fork() : AloneTest(/*wait_slice_ms=*/2) {}

  MV_Table table_ = CreateArray(session_, 3);
};

TEST_F(Fork, MakesHandlesStaleInTheChildOnly) {
  ExpectWorking(session_, table_, 1);
  for (int i = 0; i < 3; ++i) {
    Child child([&] { return TryEverything(session_, table_); });
    EXPECT_EQ(child.Wait(), 0);
  }
  ExpectWorking(session_, table_, 2);
}

TEST_F(Fork, MakesHandlesStaleInAGrandchild) {
  Child child([&] {
    Child grandchild([&] { return TryEverything(session_, table_); });
    return grandchild.Wait();
  });
  EXPECT_EQ(child.Wait(), 0);
  ExpectWorking(session_, table_, 1);
}

TEST(ForkWithoutASession, DoesNotRestrictTheChild) {
  EXPECT_EQ(MV_SessionClose(OpenAlone()), MV_OK);
  Child child([] {
    const MV_Session session = OpenAlone();
    const MV_Table table = CreateArray(session, 3);
    float value[3] = {1, 1, 1};
    if (MV_TableAddGet(table, value, value, 3) != MV_OK) return 1;
    return MV_SessionClose(session) == MV_OK ? 0 : 2;
  });
  EXPECT_EQ(child.Wait(), 0);
}

TEST_F(Fork, LeavesAPendingCallToTheParent) {
  RobustLock* const lock = FirstLockOf(table_);
  ASSERT_TRUE(lock->TryTake(0));
  const float ones[] = {1, 1, 1};
  ASSERT_EQ(MV_TableAdd(table_, ones, 3), MV_PENDING);
  for (int i = 0; i < 2; ++i) {
    Child child([&] {
      if (MV_Wait() != MV_ERR_STATE) return 101;
      if (MV_Cancel("child") != MV_OK) return 102;
      return TryEverything(session_, table_);
    });
    EXPECT_EQ(child.Wait(), 0);
  }
  lock->Leave();
  EXPECT_EQ(WaitToEnd(MV_PENDING), MV_OK) << MV_LastError();
  ExpectWorking(session_, table_, 2);
}

}  // namespace
}  // namespace multiverso::testing
