#include "calls/collective_get.h"

#include <gtest/gtest.h>

#include "support/jobs.h"

namespace multiverso::testing {
namespace {

Status GetTogether(Table* table, std::vector<float>* out,
                   const std::vector<int64_t>* rows = nullptr,
                   const WaitLimit& limit = Patiently()) {
  out->resize(static_cast<size_t>(rows == nullptr ? table->spec().count()
                                                  : static_cast<int64_t>(rows->size()) *
                                                        table->spec().num_col));
  const Request get = rows == nullptr ? Request::Get(out->data()) : GetRowsOf(*rows, out);
  return CollectiveGet(table, get, limit);
}

TEST(CollectiveGet, IncludesEveryEarlierAddAndNoLaterOne) {
  constexpr int64_t kSize = 40000;
  constexpr int kRanks = 3;
  RunJob(AllOf(kRanks), [&](Session* session, int rank) {
    Table* const table = ValueOf(Create(session, ArrayOf(kSize)));
    const std::vector<float> delta(kSize, static_cast<float>(1 << rank));
    std::vector<float> out;
    for (int round = 1; round <= 60; ++round) {
      Add(table, delta);
      ASSERT_TRUE(IsOk(GetTogether(table, &out)));
      ASSERT_EQ(out, std::vector<float>(kSize, static_cast<float>(7 * round)));
    }
  });
}

TEST(CollectiveGet, GivesEachRankTheRowsThatItAskedFor) {
  RunJob(AllOf(2), [](Session* session, int rank) {
    const std::vector<float> init = {0, 1, 10, 11, 20, 21};
    Table* const table = ValueOf(Create(session, MatrixOf(3, 2), init.data()));
    std::vector<float> out;
    const std::vector<int64_t> rows = {2, rank, 2};
    ASSERT_TRUE(GetTogether(table, &out, &rows).ok());
    const auto mine = static_cast<float>(10 * rank);
    EXPECT_EQ(out, (std::vector<float>{20, 21, mine, mine + 1, 20, 21}));
  });
}

TEST(CollectiveGet, WaitsForWorkersOnly) {
  RunJob({Role::kServer, Role::kWorker, Role::kWorker}, [](Session* session, int rank) {
    Table* const table = ValueOf(Create(session, ArrayOf(3)));
    std::vector<float> out;
    if (rank != 0) {
      EXPECT_TRUE(GetTogether(table, &out).ok());
    }
  });
}

TEST(CollectiveGet, ReportsGetsOfDifferentTables) {
  RunJob(AllOf(2), [](Session* session, int rank) {
    Table* const first = ValueOf(Create(session, ArrayOf(3)));
    Table* const second = ValueOf(Create(session, ArrayOf(3)));
    std::vector<float> out;
    EXPECT_TRUE(IsError(GetTogether(rank == 0 ? first : second, &out), Code::kMismatch,
                        "on table number 0", "on table number 1"));
    EXPECT_TRUE(GetTogether(first, &out).ok());
  });
}

}  // namespace
}  // namespace multiverso::testing
