// MV_Session...: options, description, handles and threads, with one rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/text.h"
#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso::testing {
namespace {

TEST(SessionOptions, HaveTheDefaultsOfTheHeader) {
  MV_SessionOptions options;
  ASSERT_EQ(MV_SessionOptionsInit(&options), MV_OK);
  EXPECT_EQ(options.struct_size, static_cast<int64_t>(sizeof(options)));
  EXPECT_EQ(options.mode, MV_MODE_ASYNC);
  EXPECT_EQ(options.role, MV_ROLE_ALL);
  EXPECT_EQ(options.transport, MV_TRANSPORT_SINGLE);
  EXPECT_EQ(options.timeout_ms, 1800000);
  EXPECT_EQ(options.start_timeout_ms, 0);
  EXPECT_EQ(options.mpi_comm, nullptr);
  EXPECT_EQ(MV_SessionOptionsInit(nullptr), MV_ERR_VALUE);
}

TEST(SessionOpen, RejectsInvalidOptionsAndDoesNotWriteTheHandle) {
  const auto expect_rejected = [](auto change, const char* word) {
    MV_SessionOptions options = SessionOptionsOf();
    change(&options);
    MV_Session session = nullptr;
    EXPECT_EQ(MV_SessionOpen(&options, &session), MV_ERR_VALUE) << word;
    EXPECT_TRUE(LastErrorHas(word));
    EXPECT_EQ(session, nullptr);
  };
  expect_rejected([](auto* options) { options->struct_size = 0; }, "struct_size");
  expect_rejected([](auto* options) { options->struct_size += 8; }, "struct_size");
  expect_rejected([](auto* options) { options->mode = 99; }, "mode");
  expect_rejected([](auto* options) { options->mode = -1; }, "mode");
  expect_rejected([](auto* options) { options->role = 3; }, "role");
  expect_rejected([](auto* options) { options->role = -1; }, "role");
  expect_rejected([](auto* options) { options->transport = 3; }, "transport");
  expect_rejected([](auto* options) { options->transport = MV_TRANSPORT_LOCAL; }, "job_name");
  expect_rejected([](auto* options) { options->timeout_ms = 0; }, "timeout_ms");
  expect_rejected([](auto* options) { options->timeout_ms = INT64_MAX; }, "timeout_ms");
  expect_rejected([](auto* options) { options->start_timeout_ms = -2; }, "start_timeout_ms");
  expect_rejected([](auto* options) { options->peer_timeout_ms = MV_NO_LIMIT; }, "peer_timeout");
  MV_Session unused = nullptr;
  const MV_SessionOptions valid = SessionOptionsOf();
  EXPECT_EQ(MV_SessionOpen(nullptr, &unused), MV_ERR_VALUE);
  EXPECT_EQ(MV_SessionOpen(&valid, nullptr), MV_ERR_VALUE);
  // A job needs a worker and a server, so the only rank must be both.
  expect_rejected([](auto* options) { options->role = MV_ROLE_WORKER; }, "1 workers and 0 servers");
  expect_rejected([](auto* options) { options->role = MV_ROLE_SERVER; }, "0 workers and 1 servers");
}

TEST(SessionOpen, WaitsForAbsentRanksAsLongAsItsOptionsSay) {
  const int64_t limits[][2] = {
      {50, 0}, {MV_NO_LIMIT, 50}, {1800000, 50}};  // of calls, at the start
  for (const auto& [timeout_ms, start_timeout_ms] : limits) {
    MV_SessionOptions options = SessionOptionsOf();
    options.transport = MV_TRANSPORT_LOCAL;
    const std::string name = StrCat("absent-", getpid(), "-", timeout_ms);
    options.job_name = name.c_str();
    options.job_size = 2;
    options.timeout_ms = timeout_ms;
    options.start_timeout_ms = start_timeout_ms;
    MV_Session session = nullptr;
    EXPECT_EQ(MV_SessionOpen(&options, &session), MV_ERR_TIMEOUT);
    EXPECT_TRUE(LastErrorHas("init: waited for rank 1; start_timeout= of init sets"));
  }
}

TEST(SessionOpen, AllowsWaitsWithoutALimit) {
  MV_SessionOptions options = SessionOptionsOf();
  options.timeout_ms = MV_NO_LIMIT;
  MV_Session session = nullptr;
  ASSERT_EQ(MV_SessionOpen(&options, &session), MV_OK) << MV_LastError();
  const MV_Table table = CreateArray(session, 3);
  const float delta[] = {1, 2, 3};
  MV_Future future = nullptr;
  int32_t done = 0;
  ASSERT_EQ(MV_TableStart(table, "add", nullptr, 0, delta, nullptr, 3, &future), MV_OK);
  EXPECT_EQ(MV_FutureWait(future, -1, &done), MV_OK);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(MV_FutureRelease(future), MV_OK);
  EXPECT_EQ(MV_TableFlush(table, -1), MV_OK);
  EXPECT_EQ(MV_SessionBarrier(session), MV_OK);
  EXPECT_EQ(MV_SessionClose(session), MV_OK);
}

using SessionOfOneRank = AloneTest;

TEST_F(SessionOfOneRank, IsDescribedInAStructOfTheRightSize) {
  MV_SessionDescription description{};
  EXPECT_EQ(MV_SessionDescribe(session_, &description), MV_ERR_VALUE);
  description.struct_size = sizeof(description);
  EXPECT_EQ(MV_SessionDescribe(session_, &description), MV_OK) << MV_LastError();
  EXPECT_EQ(description.rank, 0);
  EXPECT_EQ(description.size, 1);
  EXPECT_EQ(description.worker_id, 0);
  EXPECT_EQ(description.server_id, 0);
  EXPECT_EQ(description.num_workers, 1);
  EXPECT_EQ(description.num_servers, 1);
  EXPECT_EQ(description.master_rank, 0);
  EXPECT_EQ(description.num_nodes, 1);
  EXPECT_EQ(description.local_size, 1);
}

TEST_F(SessionOfOneRank, PublishesNoNegativeStep) {
  int64_t version = 0;
  EXPECT_EQ(MV_SessionPublish(session_, -5, &version), MV_ERR_VALUE);
  EXPECT_TRUE(LastErrorHas("received -5"));
}

TEST(Session, CanBeClosedAgainWhenACallHasKeptItOpen) {
  MV_SessionOptions options = SessionOptionsOf();
  options.timeout_ms = 50;
  MV_Session session = nullptr;
  ASSERT_EQ(MV_SessionOpen(&options, &session), MV_OK) << MV_LastError();
  const MV_Table table = CreateArray(session, 3);
  {
    const c_api::TableUse call = c_api::OpenTables().Using(table);
    EXPECT_EQ(MV_SessionClose(session), MV_ERR_TIMEOUT);
    EXPECT_EQ(MV_SessionBarrier(session), MV_ERR_STATE);
  }
  EXPECT_EQ(MV_SessionClose(session), MV_OK) << MV_LastError();
  EXPECT_EQ(MV_SessionClose(session), MV_ERR_HANDLE);
}

TEST(Session, ClosesOnceWhenManyThreadsCloseIt) {
  for (int round = 0; round < 50; ++round) {
    const MV_Session session = OpenAlone();
    std::atomic<int> closed{0};
    OnThreads(4, [&](int /*me*/) {
      const int32_t status = MV_SessionClose(session);
      if (status == MV_OK) {
        closed.fetch_add(1);
      } else {
        EXPECT_TRUE(status == MV_ERR_HANDLE || status == MV_ERR_STATE) << MV_LastError();
      }
    });
    EXPECT_EQ(closed.load(), 1);
  }
}

TEST(Session, CanBeEndedWhileOtherThreadsUseItsTables) {
  constexpr int64_t kSize = 1000;
  for (int round = 0; round < 20; ++round) {
    const MV_Session session = OpenAlone();
    const MV_Table table = CreateArray(session, kSize);
    std::atomic<int> calls{0};
    OnThreads(4, [&](int me) {
      if (me == 0) {
        EXPECT_TRUE(Eventually([&] { return calls.load() > 50; }));
        EXPECT_EQ(round % 2 == 0 ? MV_SessionClose(session) : MV_SessionLeave(session, ""), MV_OK)
            << MV_LastError();
        return;
      }
      std::vector<float> data(kSize, 1);
      int32_t status = MV_OK;
      while (status == MV_OK) {
        calls.fetch_add(1);
        status = me == 1   ? MV_TableAdd(table, data.data(), kSize)
                 : me == 2 ? MV_TableGet(table, data.data(), kSize, 0)
                           : MV_TableAddGet(table, data.data(), data.data(), kSize);
      }
      EXPECT_EQ(status, MV_ERR_HANDLE) << MV_LastError();
    });
  }
}

TEST_F(SessionOfOneRank, MakesCollectiveCallsOfManyThreadsOneAtATime) {
  const MV_Table table = CreateArray(session_, 3);
  OnThreads(4, [&](int me) {
    int done = 0;
    for (int i = 0; i < 2000 || done == 0; ++i) {
      float data[3] = {1, 1, 1};
      const int32_t status =
          me % 2 == 0 ? MV_SessionBarrier(session_) : MV_TableGet(table, data, 3, MV_COLLECTIVE);
      if (status == MV_OK) {
        ++done;
      } else {
        ASSERT_EQ(status, MV_ERR_STATE);
        ASSERT_TRUE(LastErrorHas("another thread is in a call on this session"));
      }
    }
  });
}

TEST(Session, CanBeEndedWhileOtherThreadsFreeItsTables) {
  for (int round = 0; round < 100; ++round) {
    const MV_Session session = OpenAlone();
    MV_Table tables[3] = {};
    for (MV_Table& table : tables) table = CreateArray(session, 10);
    OnThreads(4, [&](int me) {
      if (me == 3) {
        EXPECT_EQ(MV_SessionLeave(session, "end"), MV_OK) << MV_LastError();
        return;
      }
      const int32_t status = MV_TableFree(tables[me]);
      EXPECT_TRUE(status == MV_OK || status == MV_ERR_HANDLE) << MV_LastError();
    });
  }
}

}  // namespace
}  // namespace multiverso::testing
