// Sessions and tables by way of the C API.
#ifndef MULTIVERSO_TESTS_SUPPORT_C_API_H_
#define MULTIVERSO_TESTS_SUPPORT_C_API_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "c_api/registry.h"
#include "multiverso/c_api.h"
#include "support/jobs.h"

namespace multiverso::testing {

inline MV_SessionOptions SessionOptionsOf(int64_t wait_slice_ms = 0) {
  MV_SessionOptions options;
  EXPECT_EQ(MV_SessionOptionsInit(&options), MV_OK);
  options.timeout_ms = std::chrono::milliseconds(kPatience).count();
  options.wait_slice_ms = wait_slice_ms;
  return options;
}

// A session of one rank.
inline MV_Session OpenAlone(int64_t wait_slice_ms = 0) {
  const MV_SessionOptions options = SessionOptionsOf(wait_slice_ms);
  MV_Session session = nullptr;
  EXPECT_EQ(MV_SessionOpen(&options, &session), MV_OK) << MV_LastError();
  return session;
}

// Goes on with a pending call until it is none.
inline int32_t WaitToEnd(int32_t status) {
  while (status == MV_PENDING) status = MV_Wait();
  return status;
}

// float32.
inline MV_Table CreateMatrix(MV_Session session, int64_t rows, int64_t columns) {
  MV_TableOptions options;
  EXPECT_EQ(MV_TableOptionsInit(&options), MV_OK);
  options.kind = MV_TABLE_MATRIX;
  options.num_row = rows;
  options.num_col = columns;
  MV_Table table = nullptr;
  EXPECT_EQ(WaitToEnd(MV_TableCreate(session, &options, &table)), MV_OK) << MV_LastError();
  return table;
}

inline MV_Table CreateArray(MV_Session session, int64_t size) {
  MV_TableOptions options;
  EXPECT_EQ(MV_TableOptionsInit(&options), MV_OK);
  options.num_row = size;
  MV_Table table = nullptr;
  EXPECT_EQ(WaitToEnd(MV_TableCreate(session, &options, &table)), MV_OK) << MV_LastError();
  return table;
}

inline bool LastErrorHas(const std::string& part) {
  return std::string(MV_LastError()).find(part) != std::string::npos;
}

// The lock of the first stripe of a float32 table, for tests in which somebody holds it.
inline RobustLock* FirstLockOf(MV_Table table) {
  const c_api::TableUse use = c_api::Using(table);
  const TableSpec& spec = use->table->spec();
  ShardStorage storage =
      ShardStorage::Plan(StripeLayout(spec.num_row, spec.num_col * 4), 0).value();
  storage.Attach(use->table->here()->segment()->data());
  return storage.lock(0);
}

// Runs body(handle, rank) for each rank of a job, on threads.
template <class Body>
void RunApiJob(int ranks, std::chrono::milliseconds slice, std::chrono::milliseconds timeout,
               const Body& body) {
  const auto hub = std::make_shared<ThreadHub>(ranks);
  OnThreads(ranks, [&](int rank) {
    auto session = OpenSession(hub, rank, OptionsOf(Role::kAll, timeout));
    ASSERT_TRUE(session.ok()) << session.status().text();
    auto entry = std::make_unique<c_api::SessionEntry>();
    entry->session = std::move(session.value());
    entry->slice = slice;
    const Result<MV_Session> handle = c_api::Publish(std::move(entry));
    ASSERT_TRUE(handle.ok());
    body(handle.value(), rank);
    MV_SessionLeave(handle.value(), "end of the test");
  });
}

}  // namespace multiverso::testing

#endif  // MULTIVERSO_TESTS_SUPPORT_C_API_H_
