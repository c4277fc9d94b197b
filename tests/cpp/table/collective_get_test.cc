#include "table/collective_get.h"

#include <gtest/gtest.h>

#include "support/jobs.h"

namespace multiverso {
namespace {

using testing::AllOf;
using testing::ArrayOf;
using testing::Contains;
using testing::kPatience;
using testing::MatrixOf;
using testing::RunJob;
using testing::RunJobWithoutShutdown;

Status GetTogether(Table* table, std::vector<float>* out,
                   const std::vector<int64_t>* rows = nullptr,
                   const WaitLimit& limit = testing::Patiently()) {
  out->resize(static_cast<size_t>(rows == nullptr ? table->spec().count()
                                                  : static_cast<int64_t>(rows->size()) *
                                                        table->spec().num_col));
  const Request get =
      rows == nullptr
          ? Request::Get(out->data())
          : Request::GetRows(rows->data(), static_cast<int64_t>(rows->size()), out->data());
  return CollectiveGet(table, get, limit);
}

TEST(CollectiveGet, IncludesEveryEarlierAddAndNoLaterOne) {
  constexpr int64_t kSize = 40000;
  constexpr int kRanks = 3;
  RunJob(AllOf(kRanks), [&](Session* session, int rank) {
    const Result<Table*> table = testing::Create(session, ArrayOf(kSize));
    ASSERT_TRUE(table.ok());
    const std::vector<float> delta(kSize, static_cast<float>(1 << rank));
    std::vector<float> out;
    for (int round = 1; round <= 60; ++round) {
      testing::Add(table.value(), delta);
      const Status status = GetTogether(table.value(), &out);
      ASSERT_TRUE(status.ok()) << status.text();
      ASSERT_EQ(out, std::vector<float>(kSize, static_cast<float>(7 * round)));
    }
  });
}

TEST(CollectiveGet, GivesEachRankTheRowsThatItAskedFor) {
  RunJob(AllOf(2), [](Session* session, int rank) {
    const std::vector<float> init = {0, 1, 10, 11, 20, 21};
    const Result<Table*> table = testing::Create(session, MatrixOf(3, 2), init.data());
    ASSERT_TRUE(table.ok());
    std::vector<float> out;
    const std::vector<int64_t> rows = {2, rank, 2};
    ASSERT_TRUE(GetTogether(table.value(), &out, &rows).ok());
    const auto mine = static_cast<float>(10 * rank);
    EXPECT_EQ(out, (std::vector<float>{20, 21, mine, mine + 1, 20, 21}));
  });
}

TEST(CollectiveGet, WaitsForWorkersOnly) {
  RunJob({Role::kServer, Role::kWorker, Role::kWorker}, [](Session* session, int rank) {
    const Result<Table*> table = testing::Create(session, ArrayOf(3));
    ASSERT_TRUE(table.ok());
    std::vector<float> out;
    if (rank != 0) {
      EXPECT_TRUE(GetTogether(table.value(), &out).ok());
    }
  });
}

TEST(CollectiveGet, ReportsGetsOfDifferentTables) {
  RunJob(AllOf(2), [](Session* session, int rank) {
    const Result<Table*> first = testing::Create(session, ArrayOf(3));
    const Result<Table*> second = testing::Create(session, ArrayOf(3));
    ASSERT_TRUE(first.ok() && second.ok());
    std::vector<float> out;
    const Status status = GetTogether(rank == 0 ? first.value() : second.value(), &out);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(Contains(status, "of table number 0")) << status.text();
    EXPECT_TRUE(Contains(status, "of table number 1")) << status.text();
    EXPECT_TRUE(GetTogether(first.value(), &out).ok());
  });
}

TEST(CollectiveGet, NamesTheWorkerThatDoesNotCall) {
  RunJobWithoutShutdown(AllOf(2), kPatience, [](Session* session, int rank) {
    const Result<Table*> table = testing::Create(session, ArrayOf(3));
    ASSERT_TRUE(table.ok());
    if (rank == 1) {
      EXPECT_TRUE(testing::Eventually([&] { return session->group()->state()->IsAborted(); }));
      return;
    }
    std::vector<float> out(3);
    const Status status = GetTogether(table.value(), &out, nullptr, testing::Shortly());
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_TRUE(Contains(status, "in get(sync=True) for rank 1")) << status.text();
  });
}

TEST(CollectiveGet, ReturnsWhenItIsInterrupted) {
  const auto sessions = testing::OpenAll(2);
  testing::OnThreads(2, [&](int rank) {
    const Result<Table*> table =
        testing::Create(sessions[static_cast<size_t>(rank)].get(), ArrayOf(3));
    ASSERT_TRUE(table.ok());
    if (rank == 1) return;
    std::vector<float> out;
    Interrupt interrupt = testing::InterruptAtOnce();
    const Status status =
        GetTogether(table.value(), &out, nullptr, WaitLimit::Until(Instant::max(), &interrupt));
    EXPECT_EQ(status.code(), Code::kAborted);
    EXPECT_EQ(status.text(), "KeyboardInterrupt");
  });
}

}  // namespace
}  // namespace multiverso
