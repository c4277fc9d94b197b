// MV_TableStart, futures and flushes: what a background call copies, keeps in use, and leaves
// behind.
#include <gtest/gtest.h>
#if defined(__GLIBC__)
#include <pthread.h>
#endif

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "c_api/table_call.h"
#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso::testing {
namespace {

using c_api::BackgroundBody;

// Starts a call on the table that runs `body`.
int32_t StartBody(MV_Table table, BackgroundBody body, MV_Future* future) {
  return c_api::Guard([&] {
    auto use = std::make_shared<c_api::TableUse>(c_api::OpenTables().Using(table));
    const auto take_body = [&] { return std::move(body); };
    return c_api::StartCall(std::move(use), RequestKind::kAdd, 0, 0, take_body, future);
  });
}

using BackgroundApi = AloneTest;

TEST_F(BackgroundApi, CopiesOnlyTheArgumentsThatTheOperationHas) {
  const MV_Table table = CreateArray(session_, 3);
  float out[3] = {-1, -1, -1};
  MV_Future future = nullptr;
  const float unused = 1;
  // These ids and this delta belong to no memory that may be read.
  ASSERT_EQ(MV_TableStart(table, "get", nullptr, 1 << 20, &unused, out, 3, &future), MV_OK)
      << MV_LastError();
  int32_t done = 0;
  ASSERT_EQ(MV_FutureWait(future, -1, &done), MV_OK) << MV_LastError();
  EXPECT_EQ(out[2], 0);
  EXPECT_EQ(MV_FutureRelease(future), MV_OK);
}

// A body that tries to free the table when the thread that has started the call destroys its last
// copy, after the background thread has destroyed its own.
class FreesTableAtItsEnd {
 public:
  struct Shared {
    MV_Table table;
    std::thread::id starter = std::this_thread::get_id();
    int copies = 1;  // that the starter has made and not destroyed, with that of the other thread
    std::atomic<bool> has_ended{false};  // in the other thread
    int32_t freed = MV_OK;
  };

  explicit FreesTableAtItsEnd(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  FreesTableAtItsEnd(const FreesTableAtItsEnd& other) : shared_(other.shared_) {
    ++shared_->copies;
  }
  FreesTableAtItsEnd(FreesTableAtItsEnd&& other) noexcept : shared_(std::move(other.shared_)) {}
  FreesTableAtItsEnd& operator=(const FreesTableAtItsEnd&) = delete;
  FreesTableAtItsEnd& operator=(FreesTableAtItsEnd&&) = delete;
  ~FreesTableAtItsEnd() {
    if (shared_ == nullptr) return;
    if (std::this_thread::get_id() != shared_->starter) {
      shared_->has_ended.store(true);
    } else if (shared_->copies-- == 2) {
      EXPECT_TRUE(Eventually([&] { return shared_->has_ended.load(); }));
      shared_->freed = MV_TableFree(shared_->table);
    }
  }

  Status operator()(const WaitLimit& /*limit*/) const { return Status::Ok(); }

 private:
  std::shared_ptr<Shared> shared_;
};

TEST(StartedCall, KeepsItsTableUntilTheGuardOfTheTableIsReleased) {
  MV_SessionOptions options = SessionOptionsOf();
  options.mode = MV_MODE_SYNC;
  options.timeout_ms = 50;
  MV_Session session = nullptr;
  ASSERT_EQ(MV_SessionOpen(&options, &session), MV_OK) << MV_LastError();
  const auto shared = std::make_shared<FreesTableAtItsEnd::Shared>();
  shared->table = CreateArray(session, 3);
  MV_Future future = nullptr;
  ASSERT_EQ(StartBody(shared->table, FreesTableAtItsEnd(shared), &future), MV_OK);
  EXPECT_EQ(shared->freed, MV_ERR_TIMEOUT);
  EXPECT_EQ(MV_FutureRelease(future), MV_OK);
  EXPECT_EQ(MV_SessionClose(session), MV_OK) << MV_LastError();
}

#if defined(__GLIBC__)
// Makes the start of any thread fail, until the end of the scope.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t none;
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    EXPECT_EQ(pthread_attr_init(&none), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&none, size_t{1} << 50), 0);
    EXPECT_EQ(pthread_setattr_default_np(&none), 0);
    pthread_attr_destroy(&none);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST_F(BackgroundApi, ThatCannotStartAThreadOpensNoFuture) {
  const MV_Table table = CreateArray(session_, 1);
  const float one = 1;
  MV_Future future = nullptr;
  {
    const NoThreads none;
    EXPECT_EQ(MV_TableStart(table, "add", nullptr, 0, &one, nullptr, 1, &future), MV_ERR_MEMORY);
    EXPECT_TRUE(LastErrorHas("cannot start the background thread"));
  }
  EXPECT_EQ(future, nullptr);
  ASSERT_EQ(MV_TableStart(table, "add", nullptr, 0, &one, nullptr, 1, &future), MV_OK);
  EXPECT_EQ(MV_TableFlush(table, -1), MV_OK) << MV_LastError();
  EXPECT_EQ(MV_FutureRelease(future), MV_OK);
}
#endif

// Holds the lock of a table, so that a call in the background waits.
class ForkDuringABackgroundCall : public AloneTest {
 protected:
  ForkDuringABackgroundCall() {
    EXPECT_TRUE(lock_->TryTake(0));
    EXPECT_EQ(MV_TableStart(table_, "add", nullptr, 0, &one_, nullptr, 1, &future_), MV_OK);
  }

  const float one_ = 1;
  MV_Table table_ = CreateArray(session_, 1);
  RobustLock* lock_ = FirstLockOf(table_);
  MV_Future future_ = nullptr;
};

TEST_F(ForkDuringABackgroundCall, LetsTheChildReleaseAFutureForWhichAThreadOfTheParentWaits) {
  std::atomic<bool> is_waiting{false};
  std::thread waiting([&] {
    int32_t done = 0;
    MV_SetInterrupt(
        [](void* flag) -> const char* {
          static_cast<std::atomic<bool>*>(flag)->store(true);
          return nullptr;
        },
        &is_waiting);
    EXPECT_EQ(MV_FutureWait(future_, -1, &done), MV_OK) << MV_LastError();
  });
  EXPECT_TRUE(Eventually([&] { return is_waiting.load(); }));
  Child child([&] { return MV_FutureRelease(future_) == MV_ERR_FORKED ? 0 : 1; });
  EXPECT_EQ(child.Wait(), 0);
  lock_->Release();
  waiting.join();
  EXPECT_EQ(MV_FutureRelease(future_), MV_OK);
}

TEST_F(ForkDuringABackgroundCall, LetsTheChildReleaseAFutureWhoseTableIsGone) {
  lock_->Release();
  EXPECT_EQ(MV_TableFree(table_), MV_OK) << MV_LastError();
  Child child([&] { return MV_FutureRelease(future_) == MV_ERR_FORKED ? 0 : 1; });
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(MV_FutureRelease(future_), MV_OK);
}

TEST(InterruptedFlush, EndsTheCollectiveCallOnAllRanks) {
  RunApiJob(2, kPatience, [](MV_Session session, int rank) {
    const MV_Table table = CreateArray(session, 3);
    if (rank == 0) {
      EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_ABORTED);
      EXPECT_TRUE(LastErrorHas("enough"));
      return;
    }
    std::atomic<bool> ends{false};
    MV_Future future = nullptr;
    const auto wait = [&](const WaitLimit&) {
      EXPECT_TRUE(Eventually([&] { return ends.load(); }));
      return Status::Ok();
    };
    ASSERT_EQ(StartBody(table, wait, &future), MV_OK);
    MV_SetInterrupt([](void*) { return "enough"; }, nullptr);
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_ABORTED);
    MV_SetInterrupt(nullptr, nullptr);
    ends.store(true);
    EXPECT_EQ(MV_TableFlush(table, -1), MV_OK) << MV_LastError();
    EXPECT_EQ(MV_FutureRelease(future), MV_OK);
  });
}

}  // namespace
}  // namespace multiverso::testing
