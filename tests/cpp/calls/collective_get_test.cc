#include "calls/collective_get.h"

#include <gtest/gtest.h>

#include "support/jobs.h"

namespace multiverso::testing {
namespace {

TEST(CollectiveGet, ReportsGetsOfDifferentTables) {
  RunJob(AllOf(2), [](Session* session, int rank) {
    Table* const first = ValueOf(Create(session, ArrayOf(3)));
    Table* const second = ValueOf(Create(session, ArrayOf(3)));
    std::vector<float> out(3);
    const Request get = Request::Get(out.data());
    EXPECT_TRUE(IsError(CollectiveGet(rank == 0 ? first : second, get, Patiently()),
                        Code::kMismatch, "on table number 0", "on table number 1"));
    EXPECT_TRUE(CollectiveGet(first, get, Patiently()).ok());
  });
}

}  // namespace
}  // namespace multiverso::testing
