// MV_Session...: options, handles and threads, with one rank.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "multiverso/c_api.h"
#include "support/c_api.h"

namespace multiverso::testing {
namespace {

TEST(Options, HaveTheDefaultsOfTheHeader) {
  MV_SessionOptions session;
  ASSERT_EQ(MV_SessionOptionsInit(&session), MV_OK);
  EXPECT_EQ(session.mode, MV_MODE_ASYNC);
  EXPECT_EQ(session.role, MV_ROLE_ALL);
  EXPECT_EQ(session.transport, MV_TRANSPORT_SINGLE);
  EXPECT_EQ(session.timeout_ms, 1800000);
  EXPECT_EQ(session.start_timeout_ms, 0);
  EXPECT_EQ(session.mpi_comm, nullptr);
  const MV_TableOptions table = ArrayOptions(0);
  EXPECT_EQ(table.kind, MV_TABLE_ARRAY);
  EXPECT_EQ(table.dtype, MV_FLOAT32);
  EXPECT_EQ(table.num_col, 1);
  EXPECT_EQ(table.updater, MV_UPDATER_ADD);
  EXPECT_EQ(table.hyper[MV_HYPER_LEARNING_RATE], 0.01);
  EXPECT_EQ(table.name, nullptr);
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

using SessionOfOneRank = AloneTest;

TEST_F(SessionOfOneRank, RejectsOtherStructsAndNegativeSteps) {
  MV_SessionDescription description{};
  EXPECT_EQ(MV_SessionDescribe(session_, &description), MV_ERR_VALUE);
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

}  // namespace
}  // namespace multiverso::testing
