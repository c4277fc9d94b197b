// Sessions and tables of the C API.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "c_api/registry.h"
#include "multiverso/c_api.h"
#include "support/jobs.h"

namespace multiverso::testing {

inline MV_SessionOptions SessionOptionsOf() {
  MV_SessionOptions options;
  EXPECT_EQ(MV_SessionOptionsInit(&options), MV_OK);
  options.timeout_ms = std::chrono::milliseconds(kPatience).count();
  return options;
}

inline MV_Session OpenAlone() {
  const MV_SessionOptions options = SessionOptionsOf();
  MV_Session session = nullptr;
  EXPECT_EQ(MV_SessionOpen(&options, &session), MV_OK) << MV_LastError();
  return session;
}

inline MV_TableOptions ArrayOptions(int64_t size) {
  MV_TableOptions options;
  EXPECT_EQ(MV_TableOptionsInit(&options), MV_OK);
  options.num_row = size;
  return options;
}

inline MV_Table CreateTable(MV_Session session, const MV_TableOptions& options) {
  MV_Table table = nullptr;
  EXPECT_EQ(MV_TableCreate(session, &options, &table), MV_OK) << MV_LastError();
  return table;
}

inline MV_Table CreateArray(MV_Session session, int64_t size) {
  return CreateTable(session, ArrayOptions(size));
}

inline MV_Table CreateMatrix(MV_Session session, int64_t rows, int64_t columns) {
  MV_TableOptions options = ArrayOptions(rows);
  options.kind = MV_TABLE_MATRIX;
  options.num_col = columns;
  return CreateTable(session, options);
}

inline ::testing::AssertionResult LastErrorHas(const std::string& part) {
  return Contains(std::string(MV_LastError()), part);
}

inline void AwaitAbort(MV_Session session) {
  AwaitAbort(c_api::OpenSessions().Using(session)->session.get());
}

// Opens a session of one rank before each test and closes the session afterwards.
class AloneTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(MV_SessionClose(session_), MV_OK) << MV_LastError(); }

  MV_Session session_ = OpenAlone();
};

// Returns the lock of the first stripe of a float32 table.
inline RobustLock* FirstLockOf(MV_Table table) {
  const c_api::TableUse use = c_api::OpenTables().Using(table);
  const TableSpec& spec = use->table->spec();
  ShardStorage storage = ValueOf(
      ShardStorage::Plan(StripeLayout(spec.num_row, spec.num_col * 4), spec.num_col * 4, 0));
  storage.Attach(use->table->here()->segment()->data());
  return storage.lock(0);
}

// Runs body(session, rank) on a thread for each rank of a job. Each rank then leaves its session.
template <class Body>
void RunApiJob(int ranks, std::chrono::milliseconds timeout, const Body& body) {
  const auto hub = std::make_shared<ThreadHub>(ranks);
  OnThreads(ranks, [&](int rank) {
    auto session = ValueOf(OpenSession(hub, rank, OptionsOf(Role::kAll, timeout)));
    MV_Session handle = nullptr;
    EXPECT_TRUE(IsOk(c_api::OpenHandle(std::move(session), &handle)));
    body(handle, rank);
    MV_SessionLeave(handle, "end of the test");
  });
}

}  // namespace multiverso::testing
