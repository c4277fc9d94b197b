// A forked child cannot use the sessions of its parent, and the child's attempts do no harm there.
#include "c_api/registry.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

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

// Returns whether the memory has only zeros, and can be changed.
bool IsBlank(const void* memory) {
  volatile float* const values = static_cast<float*>(const_cast<void*>(memory));
  for (int i = 0; i < 3; ++i) {
    if (values[i] != 0) return false;
    values[i] = 7;
  }
  return true;
}

TEST(ForkInSyncMode, LeavesZerosInTheMemoryThatTheParentHasShown) {
  MV_SessionOptions options = SessionOptionsOf();
  options.mode = MV_MODE_SYNC;
  MV_Session session = nullptr;
  ASSERT_EQ(MV_SessionOpen(&options, &session), MV_OK);
  const MV_Table table = CreateArray(session, 3);
  const float ones[] = {1, 1, 1};
  ASSERT_EQ(MV_TableAdd(table, ones, 3), MV_OK);
  void* delta = nullptr;
  const void* view = nullptr;
  const void* kept = nullptr;
  ASSERT_EQ(MV_TableDeltaBuffer(table, &delta), MV_OK);
  ASSERT_EQ(MV_TableView(table, &view), MV_OK);
  MV_Table other = CreateArray(session, 3);
  ASSERT_EQ(MV_TableView(other, &kept), MV_OK);
  MV_Memory memory = nullptr;
  ASSERT_EQ(MV_TableKeepMemory(other, &memory), MV_OK);
  ASSERT_EQ(MV_TableFree(other), MV_OK);
  std::memcpy(delta, ones, sizeof(ones));
  const auto look = [&] { return IsBlank(delta) && IsBlank(view) && IsBlank(kept) ? 0 : 1; };
  EXPECT_EQ(Child(look).Wait(), 0);
  EXPECT_EQ(static_cast<float*>(delta)[2], 1);  // The child has changed its own memory.
  EXPECT_EQ(static_cast<const float*>(view)[2], 1);
  EXPECT_EQ(MV_SessionClose(session), MV_OK);
  // The memory that is kept outlives the session.
  EXPECT_EQ(Child([&] { return IsBlank(kept) ? 0 : 1; }).Wait(), 0);
  EXPECT_EQ(MV_MemoryRelease(memory), MV_OK);
}

TEST_F(Fork, DoesNotUnmapMemoryOfTheChildWhenASyncIsFreed) {
  const int64_t count = int64_t{1} << 20;
  const MV_Table table = CreateArray(session_, count);
  std::vector<float> values(count);
  MV_ParamSync sync = nullptr;
  ASSERT_EQ(MV_ParamSyncCreate(table, &count, 1, values.data(), &sync), MV_OK);
  Child child([&] {
    // One of these takes the place of the memory of the sync, which the child does not have.
    constexpr size_t kBytes = size_t{1} << 20;
    std::vector<std::unique_ptr<char[]>> blocks;
    for (int i = 0; i < 32; ++i) {
      blocks.push_back(std::make_unique<char[]>(kBytes));
      std::memset(blocks.back().get(), 1, kBytes);
    }
    (void)MV_ParamSyncFree(sync);
    for (const auto& block : blocks) {
      for (size_t i = 0; i < kBytes; i += 4096) {
        if (block[i] != 1) return 1;
      }
    }
    return 0;
  });
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(MV_ParamSyncFree(sync), MV_OK);
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

// Forks while another thread waits for the lock of a table, and then releases the lock.
struct ForkWhileWaiting {
  MV_Session session;
  MV_Table table;
  RobustLock* lock;

  static const char* Run(void* argument) {
    auto* const test = static_cast<ForkWhileWaiting*>(argument);
    std::thread([test] {
      Child child([test] { return TryEverything(test->session, test->table); });
      EXPECT_EQ(child.Wait(), 0);
    }).join();
    if (test->lock != nullptr) test->lock->Release();
    test->lock = nullptr;
    return nullptr;
  }
};

TEST_F(Fork, LeavesAWaitingCallToTheParent) {
  ForkWhileWaiting test{session_, table_, FirstLockOf(table_)};
  ASSERT_TRUE(test.lock->TryTake(0));
  MV_SetInterrupt(&ForkWhileWaiting::Run, &test);
  const float ones[] = {1, 1, 1};
  EXPECT_EQ(MV_TableAdd(table_, ones, 3), MV_OK) << MV_LastError();
  MV_SetInterrupt(nullptr, nullptr);
  EXPECT_EQ(test.lock, nullptr);
  ExpectWorking(session_, table_, 2);
}

TEST(ForkDuringOpening, IsNoticed) {
  ASSERT_TRUE(c_api::WatchForks().ok());
  const c_api::SessionOpening opening;
  Child child([] { return c_api::CheckNotForked().code() == Code::kForked ? 0 : 1; });
  EXPECT_EQ(child.Wait(), 0);
}

}  // namespace
}  // namespace multiverso::testing
