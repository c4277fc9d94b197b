#include "table/table_creation.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <numeric>

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

TEST(TableCreation, MapsTheSameMemoryOnAllRanks) {
  RunJob(AllOf(3), [](Session* session, int /*rank*/) {
    for (int64_t id = 0; id < 3; ++id) ExpectUsable(session, id);
  });
}

TEST(TableCreation, UsesTheInitialValueOfTheMasterOnly) {
  RunJob({Role::kServer, Role::kAll, Role::kWorker}, [](Session* session, int rank) {
    ASSERT_EQ(session->members().master_rank(), 1);
    for (const int64_t size : {1, 3, 100003}) {
      std::vector<double> init(static_cast<size_t>(size));
      std::iota(init.begin(), init.end(), 1000000.0 * rank);
      Table* const table = ValueOf(
          Create(session, ArrayOf(size, DType::kFloat64), rank == 2 ? nullptr : init.data()));
      // The initial value is visible without a barrier.
      std::iota(init.begin(), init.end(), 1000000.0);
      EXPECT_EQ(Values<double>(table), init) << "rank " << rank;
    }
  });
}

TEST(TableCreation, StoresInitialValuesWithoutTheUpdater) {
  RunJob(AllOf(1), [](Session* session, int /*rank*/) {
    TableSpec spec = ArrayOf(2);
    spec.updater = static_cast<int32_t>(UpdaterKind::kSgd);
    spec.hyper[kLearningRate] = 0.5;
    const std::vector<float> init = {3, 4};
    Table* const table = ValueOf(Create(session, spec, init.data()));
    EXPECT_EQ(Values<float>(table), init);
  });
}

TEST(TableCreation, NamesBothOfTwoDifferentTablesAndTheSessionContinues) {
  RunJob(AllOf(3), [](Session* session, int rank) {
    TableSpec name = MatrixOf(4, 8);
    CopyText(name.name, "other");
    TableSpec updater = MatrixOf(4, 8);
    updater.updater = static_cast<int32_t>(UpdaterKind::kSgd);
    TableSpec hyper = MatrixOf(4, 8);
    hyper.hyper[kLearningRate] = 1;
    for (const TableSpec& other :
         {ArrayOf(32), MatrixOf(8, 4), MatrixOf(4, 8, DType::kInt32), name, updater, hyper}) {
      const Status status = Create(session, rank == 2 ? other : MatrixOf(4, 8)).status();
      EXPECT_EQ(status.code(), Code::kMismatch);
      TableSpec named = other;
      if (named.name[0] == '\0') CopyText(named.name, "table 0");
      EXPECT_TRUE(Contains(status, "rank 0 asked for matrix 'table 0' of 4 x 8 float32"));
      EXPECT_TRUE(Contains(status, "rank 2 for " + named.Describe()));
    }
    ExpectUsable(session, 0);
  });
}

TEST(TableCreation, NamesTheRankThatAskedForAnInvalidTable) {
  RunJob(AllOf(3), [](Session* session, int rank) {
    for (int wrong = 0; wrong < 3; ++wrong) {
      const Status status = Create(session, ArrayOf(rank == wrong ? 0 : 5)).status();
      if (rank == wrong) {
        EXPECT_TRUE(IsError(status, Code::kValue, "received 0 x 1"));
        continue;
      }
      EXPECT_TRUE(IsError(status, Code::kMismatch, "of 0 float32, updater add (invalid)",
                          "of 5 float32, updater add", StrCat("rank ", wrong)));
    }
    ExpectUsable(session, 0);
  });
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

TEST(TableCreation, DoesNotTouchThePagesOfALargeTable) {
  RunJob(AllOf(4), [](Session* session, int rank) {
    const int64_t bytes = std::min(int64_t{8} << 30, MemoryCeiling() / 2);
    Table* const table = ValueOf(Create(session, ArrayOf(bytes / 4)));
    const Segment& segment = *table->here()->segment();
    std::vector<unsigned char> pages(static_cast<size_t>(DivideUp(segment.bytes(), 4096)));
    ASSERT_EQ(mincore(segment.data(), static_cast<size_t>(segment.bytes()), pages.data()), 0);
    int64_t resident = 0;
    for (const unsigned char page : pages) resident += page & 1;
    EXPECT_LE(resident * 4096, 16 << 20) << "rank " << rank;
  });
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

TEST(TableCreation, AbortsTheSessionWhenInterrupted) {
  RunJobWithoutShutdown(AllOf(2), kPatience, [](Session* session, int rank) {
    if (rank == 0) {
      Interrupt interrupt = InterruptAtOnce();
      EXPECT_EQ(session->CreateTable(ArrayOf(5), nullptr, &interrupt).status().text(),
                "KeyboardInterrupt");
      return;
    }
    AwaitAbort(session);
    EXPECT_TRUE(IsError(Create(session, ArrayOf(5)), Code::kAborted,
                        "rank 0 aborted the session: KeyboardInterrupt"));
  });
}

}  // namespace
}  // namespace multiverso::testing
