// A waiting call blocks, and asks the function of its thread, or the default one, whether to abort.
#include "c_api/waiting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "support/c_api.h"
#include "support/elastic.h"

namespace multiverso::testing {
namespace {

// Lets the waiting calls of this thread call `function`, until the end of the scope.
class WhileWaiting {
 public:
  explicit WhileWaiting(std::function<const char*()> function) : function_(std::move(function)) {
    MV_SetInterrupt(&Call, this);
  }
  ~WhileWaiting() { MV_SetInterrupt(nullptr, nullptr); }
  WhileWaiting(const WhileWaiting&) = delete;
  WhileWaiting& operator=(const WhileWaiting&) = delete;

  static const char* Call(void* self) { return static_cast<WhileWaiting*>(self)->function_(); }

 private:
  std::function<const char*()> function_;
};

// Aborts the calls of this thread from check number `times` on, until the end of the scope.
class AbortsAfter {
 public:
  explicit AbortsAfter(int times)
      : left_(times), waiting_([this] { return --left_ > 0 ? nullptr : "enough"; }) {}
  int left() const { return left_; }

 private:
  int left_;
  WhileWaiting waiting_;
};

TEST(Waiting, CollectiveCallBlocksCollectiveCallsOfOtherThreadsOnly) {
  std::atomic<bool> tried{false};
  RunApiJob(2, kPatience, [&](MV_Session session, int rank) {
    const MV_Table table = CreateArray(session, 3);
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return tried.load(); }));
      EXPECT_EQ(MV_SessionBarrier(session), MV_OK) << MV_LastError();
      return;
    }
    const WhileWaiting waiting([&]() -> const char* {
      if (tried.load()) return nullptr;
      std::thread([&] {
        float data[3] = {1, 1, 1};
        EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_STATE);
        EXPECT_EQ(MV_SessionClose(session), MV_ERR_STATE);
        EXPECT_EQ(MV_TableGet(table, data, 3, MV_COLLECTIVE), MV_ERR_STATE);
        EXPECT_EQ(MV_TableAddGet(table, data, data, 3), MV_OK) << MV_LastError();
      }).join();
      tried.store(true);
      return nullptr;
    });
    EXPECT_EQ(MV_SessionBarrier(session), MV_OK) << MV_LastError();
    EXPECT_TRUE(tried.load());
  });
}

// Holds the lock of the table's first stripe, so that an add to the table waits.
class WaitingAdd : public AloneTest {
 protected:
  WaitingAdd() { EXPECT_TRUE(lock_->TryTake(0)); }

  MV_Table table_ = CreateArray(session_, 40000);
  RobustLock* lock_ = FirstLockOf(table_);
  std::vector<float> data_ = std::vector<float>(40000, 1);
};

TEST_F(WaitingAdd, DoesNotEndTheSessionWhenInterrupted) {
  {
    const AbortsAfter once(1);
    EXPECT_EQ(MV_TableAdd(table_, data_.data(), 40000), MV_ERR_ABORTED);
    EXPECT_STREQ(MV_LastError(), "rank 0, table 'table 0', add: enough");
  }
  lock_->Release();
  EXPECT_EQ(MV_TableAdd(table_, data_.data(), 40000), MV_OK);
  std::vector<float> out(40000);
  EXPECT_EQ(MV_TableGet(table_, out.data(), 40000, 0), MV_OK);
  EXPECT_EQ(out.back(), 1);
  EXPECT_EQ(MV_SessionBarrier(session_), MV_OK);
}

TEST_F(AloneTest, EvictionWaitsForRowsThatOtherCallsHaveNotGivenToKeysYet) {
  MV_TableOptions options = ArrayOptions(0);
  options.kind = MV_TABLE_HASH;
  options.capacity = 10;
  options.evict = MV_EVICT_LRU;
  options.initializer = MV_INITIALIZER_ZEROS;
  const MV_Table table = CreateTable(session_, options);
  auto others = std::make_unique<LazyRows::Room>();
  c_api::OpenTables().Using(table)->table->here()->shard()->lazy()->TakeRoom(10, others.get());
  ASSERT_EQ(others->left(), 10);
  const int64_t key = 7;
  float value = -1;
  {
    const WhileWaiting waiting([&]() -> const char* {
      others.reset();
      return nullptr;
    });
    EXPECT_EQ(MV_TableRun(table, "fetch_keys", &key, 1, nullptr, &value, 1, 0), MV_OK)
        << MV_LastError();
  }
  EXPECT_EQ(others, nullptr);
  EXPECT_EQ(value, 0);
}

TEST(Interrupted, CallWithABoundLeavesAnElasticSession) {
  ModeOptions stale;
  stale.mode = Mode::kStale;
  stale.staleness = 1;
  Sessions opened = OpenElastic(2, ElasticOptions(stale));
  MV_Session sessions[2] = {};
  MV_Table tables[2] = {};
  OnThreads(2, [&](int rank) {
    EXPECT_TRUE(
        IsOk(c_api::OpenHandle(std::move(opened[static_cast<size_t>(rank)]), &sessions[rank])));
    tables[rank] = CreateArray(sessions[rank], 3);
  });
  const float ones[] = {1, 1, 1};
  ASSERT_EQ(MV_TableAdd(tables[1], ones, 3), MV_OK) << MV_LastError();
  {
    const AbortsAfter once(1);
    int32_t status = MV_OK;
    for (int i = 0; i < 10 && status == MV_OK; ++i) status = MV_TableAdd(tables[0], ones, 3);
    EXPECT_EQ(status, MV_ERR_ABORTED);
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(MV_TableAdd(tables[1], ones, 3), MV_OK) << MV_LastError();
  }
  for (const MV_Session session : sessions) MV_SessionLeave(session, "end of the test");
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

TEST(Interrupted, FunctionCannotMakeCallsItself) {
  RunApiJob(2, kPatience, [](MV_Session session, int rank) {
    if (rank == 1) return AwaitAbort(session);
    const MV_Table table = nullptr;
    std::vector<int32_t> statuses;
    const WhileWaiting waiting([&] {
      statuses = {MV_SessionBarrier(session), MV_SessionClose(session),
                  MV_SessionLeave(session, "no"), MV_TableFree(table)};
      return "enough";
    });
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_ABORTED);
    EXPECT_EQ(statuses, std::vector<int32_t>(4, MV_ERR_STATE));
  });
}

// What the default function has seen.
struct DefaultChecks {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::atomic<int> times{0};
  std::atomic<bool> aborts{false};

  DefaultChecks() { MV_SetDefaultInterrupt(&Call, this); }
  ~DefaultChecks() { MV_SetDefaultInterrupt(nullptr, nullptr); }

  static const char* Call(void* argument) {
    auto* const self = static_cast<DefaultChecks*>(argument);
    self->most.store(std::max(self->most.load(), self->running.fetch_add(1) + 1));
    std::this_thread::yield();
    self->running.fetch_sub(1);
    self->times.fetch_add(1);
    return self->aborts.load() ? "all of you" : nullptr;
  }
};

TEST(DefaultInterrupt, IsAskedByOneThreadAtATime) {
  DefaultChecks checks;
  RunApiJob(4, kPatience, [&](MV_Session session, int rank) {
    if (rank == 3) {
      EXPECT_TRUE(Eventually([&] { return checks.times.load() > 20; }));
      checks.aborts.store(true);
      return AwaitAbort(session);
    }
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_ABORTED);
    EXPECT_TRUE(LastErrorHas("all of you"));
  });
  EXPECT_EQ(checks.most.load(), 1);
}

TEST(DefaultInterrupt, CannotReplaceItself) {
  static std::atomic<int32_t> status{MV_OK};
  MV_SetDefaultInterrupt(
      [](void*) -> const char* {
        status.store(MV_SetDefaultInterrupt(nullptr, nullptr));
        return "enough";
      },
      nullptr);
  RunApiJob(2, kPatience, [](MV_Session session, int rank) {
    if (rank == 1) return AwaitAbort(session);
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_ABORTED);
  });
  EXPECT_EQ(status.load(), MV_ERR_STATE);
  EXPECT_EQ(MV_SetDefaultInterrupt(nullptr, nullptr), MV_OK);
}

TEST(DefaultInterrupt, IsNotAskedByAThreadWithAFunctionOfItsOwn) {
  DefaultChecks checks;
  checks.aborts.store(true);
  RunApiJob(2, kPatience, [&](MV_Session session, int rank) {
    const AbortsAfter some(rank == 0 ? 3 : 1 << 30);
    if (rank == 1) return AwaitAbort(session);
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_ABORTED);
    EXPECT_STREQ(MV_LastError(), "enough");
  });
  EXPECT_EQ(checks.times.load(), 0);
}

}  // namespace
}  // namespace multiverso::testing
