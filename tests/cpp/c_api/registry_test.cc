// No function accepts a handle that is not open. A forked child cannot use the sessions of its
// parent, and the child's attempts do no harm there.
#include "c_api/registry.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <type_traits>

#include "support/c_api.h"

namespace multiverso::testing {
namespace {

template <class T, class = void>
constexpr bool kIsStruct = false;
template <class T>
constexpr bool kIsStruct<T, std::void_t<decltype(T::struct_size)>> = true;

// Returns zero, or if `has_room`, the pointers that a call needs: to zeros, or to a text.
template <class T>
T ArgumentOf(bool has_room) {
  if constexpr (!std::is_pointer_v<T>) {
    return T{};
  } else if constexpr (std::is_same_v<T, const char*>) {
    return has_room ? "get" : nullptr;
  } else if constexpr (std::is_void_v<std::remove_pointer_t<T>>) {
    return ArgumentOf<double*>(has_room);
  } else {
    static std::remove_const_t<std::remove_pointer_t<T>> zeros{};
    if constexpr (kIsStruct<decltype(zeros)>) zeros.struct_size = sizeof(zeros);
    return has_room ? &zeros : nullptr;
  }
}

template <class Handle, class... Argument>
int32_t Call(int32_t (*function)(Handle, Argument...), Handle handle,
             [[maybe_unused]] bool has_room) {
  return function(handle, ArgumentOf<Argument>(has_room)...);
}

// Calls functions with the handle. Returns the place of the first that does not return `expected`,
// or 0.
template <class Handle, class... Function>
int FirstOther(int32_t expected, bool has_room, Handle handle, Function... functions) {
  int place = 0;
  return (... && (++place, Call(functions, handle, has_room) == expected)) ? 0 : place;
}

// Tries the functions that need a pointer besides the handle.
int TryNeedy(MV_Session session, int32_t expected, bool has_room = false) {
  return FirstOther(expected, has_room, session, MV_SessionDescribe, MV_SessionLost, MV_SessionRun,
                    MV_SessionLeaving, MV_SessionAgreeToLeave, MV_SessionPublish, MV_SessionStats,
                    MV_SessionLoad, MV_TableCreate);
}
int TryNeedy(MV_Table table, int32_t expected, bool has_room = false) {
  return FirstOther(expected, has_room, table, MV_TableDescribe, MV_TableRun, MV_TableStart,
                    MV_TableGet, MV_TableAdd, MV_TableAddGet, MV_TableDeltaBuffer, MV_TableView,
                    MV_TableMemory, MV_TableKeepMemory, MV_TableFetchAdd, MV_TableCompareSwap,
                    MV_TableKeyCounts, MV_TableListChanges, MV_TableSave, MV_TableLoad,
                    MV_ParamSyncCreate);
}

// Tries all functions with handles that are not open. Returns 0 if they return `expected`.
int TryEverything(MV_Session session, MV_Table table, int32_t expected) {
  const auto first_other = [&](auto handle, auto... functions) {
    return FirstOther(expected, true, handle, functions...);
  };
  const int places[] = {
      TryNeedy(session, expected, true),
      first_other(session, MV_SessionBarrier, MV_SessionAggregate, MV_SessionFinish,
                  MV_SessionSaveWait, MV_SessionFlush, MV_SessionSetTimeout, MV_SessionClose,
                  MV_SessionLeave),
      TryNeedy(table, expected, true),
      first_other(table, MV_TableFlush, MV_TableGetRows, MV_TableAddRows, MV_TableGetPart,
                  MV_TableAddPart, MV_TableCheckHyper, MV_TableSetHyper, MV_TableFree),
      first_other(MV_ParamSync{}, MV_ParamSyncSetScale, MV_ParamSyncRun, MV_ParamSyncStart,
                  MV_ParamSyncFree),
      first_other(MV_Future{}, MV_FutureWait, MV_FutureDone, MV_FutureRelease),
      first_other(MV_Reader{}, MV_ReaderDescribe, MV_ReaderRun, MV_ReaderWait, MV_ReaderCompare,
                  MV_ReaderPin, MV_ReaderUnpin, MV_ReaderMemory, MV_ReaderClose),
      first_other(MV_Checkpoint{}, MV_CheckpointDescribe, MV_CheckpointDescribeTable,
                  MV_CheckpointClocks, MV_CheckpointVerify, MV_CheckpointRead, MV_CheckpointClose),
      first_other(MV_Memory{}, MV_MemoryRelease)};
  for (int kind = 0; kind < 9; ++kind) {
    if (places[kind] != 0) return 20 * kind + places[kind];
  }
  return 0;
}

// Tries everything in a forked child.
int TryInChild(MV_Session session, MV_Table table) {
  const MV_SessionOptions options = SessionOptionsOf();
  MV_Session new_session = nullptr;
  if (MV_SessionOpen(&options, &new_session) != MV_ERR_FORKED || !LastErrorHas("forked")) return 99;
  return TryEverything(session, table, MV_ERR_FORKED);
}

TEST_F(AloneTest, FunctionsRejectNull) {
  EXPECT_EQ(TryNeedy(session_, MV_ERR_VALUE), 0);
  EXPECT_EQ(TryNeedy(CreateArray(session_, 3), MV_ERR_VALUE), 0);
  EXPECT_EQ(MV_SessionOptionsInit(nullptr), MV_ERR_VALUE);
  EXPECT_EQ(MV_TableOptionsInit(nullptr), MV_ERR_VALUE);
  EXPECT_EQ(MV_LastErrorPeer(nullptr), MV_ERR_VALUE);
  EXPECT_EQ(MV_ExitDeadlineBegin(nullptr, 1), MV_ERR_VALUE);
}

TEST_F(AloneTest, FunctionsRejectHandlesThatAreNotOpen) {
  const MV_Session closed = OpenAlone();
  const MV_Table closed_with_it = CreateArray(closed, 3);
  const MV_Table freed = CreateArray(session_, 3);
  ASSERT_EQ(MV_SessionClose(closed), MV_OK) << MV_LastError();
  ASSERT_EQ(MV_TableFree(freed), MV_OK) << MV_LastError();
  EXPECT_EQ(TryEverything(closed, closed_with_it, MV_ERR_HANDLE), 0);
  EXPECT_EQ(TryEverything(nullptr, freed, MV_ERR_HANDLE), 0);
  EXPECT_EQ(
      TryEverything(reinterpret_cast<MV_Session>(uintptr_t{0xdeadbeef}), nullptr, MV_ERR_HANDLE),
      0);
  EXPECT_EQ(MV_TableGet(freed, nullptr, 0, 0), MV_ERR_HANDLE);
  EXPECT_TRUE(LastErrorHas("this table is not open: it was closed, or its session ended"));
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
    Child child([&] { return TryInChild(session_, table_); });
    EXPECT_EQ(child.Wait(), 0);
  }
  ExpectWorking(session_, table_, 2);
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

// Forks while another thread waits for the lock of a table, and then releases the lock.
struct ForkWhileWaiting {
  MV_Session session;
  MV_Table table;
  RobustLock* lock;

  static const char* Run(void* argument) {
    auto* const test = static_cast<ForkWhileWaiting*>(argument);
    std::thread([test] {
      Child child([test] { return TryInChild(test->session, test->table); });
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
