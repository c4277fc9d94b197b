#include "calls/table_creation.h"

#include <gtest/gtest.h>

#include "memory/limits.h"
#include "support/jobs.h"

namespace multiverso::testing {
namespace {

// Creates a table and checks that the table can be used.
void ExpectUsable(Session* session, int64_t expected_id) {
  Table* const table = ValueOf(Create(session, ArrayOf(10)));
  EXPECT_EQ(table->id(), expected_id);
  Add(table, std::vector<float>(10, 1));
  ASSERT_TRUE(Barrier(session).ok());
  const auto ranks = static_cast<float>(session->members().size());
  EXPECT_EQ(Values<float>(table), std::vector<float>(10, ranks));
}

TEST(TableCreation, ReportsTheBytesOfATableThatExceedsTheMemory) {
  for (const int ranks : {1, 3}) {
    RunJob(AllOf(ranks), [](Session* session, int /*rank*/) {
      for (const int64_t size : {MemoryCeiling() / 8 + 1, int64_t{1} << 59}) {
        EXPECT_TRUE(IsError(Create(session, ArrayOf(size, DType::kInt64)), Code::kMemory,
                            StrCat("of ", size, " int64")));
      }
      ExpectUsable(session, 0);
    });
  }
}

TEST(TableCreation, LeavesNoDescriptorBehindWhetherItSucceedsOrNot) {
  int before = 0;
  RunJob(AllOf(2), [&](Session* session, int rank) {
    // Rank 0 counts the descriptors of the process while rank 1 waits and opens none.
    ASSERT_TRUE(Barrier(session).ok());
    if (rank == 0) before = OpenDescriptors();
    ASSERT_TRUE(Barrier(session).ok());
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(Create(session, ArrayOf(10000)).ok());
      ASSERT_FALSE(Create(session, ArrayOf(10000 + rank)).ok());
      ASSERT_FALSE(Create(session, ArrayOf(MemoryCeiling())).ok());
    }
    ASSERT_TRUE(Barrier(session).ok());
    if (rank == 0) {
      EXPECT_EQ(OpenDescriptors(), before);
    }
    ASSERT_TRUE(Barrier(session).ok());
  });
}

}  // namespace
}  // namespace multiverso::testing
