#include "table/table_creation.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <numeric>
#include <thread>

#include "memory/limits.h"
#include "support/jobs.h"

namespace multiverso {
namespace {

using testing::AllOf;
using testing::ArrayOf;
using testing::Contains;
using testing::Create;
using testing::MatrixOf;
using testing::OpenAll;
using testing::OpenDescriptors;
using testing::RunJob;
using testing::RunJobWithoutShutdown;
using testing::Values;

// The session is as good as new: creates a table and uses it.
void ExpectUsable(Session* session, int64_t expected_id) {
  const Result<Table*> table = Create(session, ArrayOf(10));
  ASSERT_TRUE(table.ok()) << table.status().text();
  EXPECT_EQ(table.value()->id(), expected_id);
  testing::Add(table.value(), std::vector<float>(10, 1));
  ASSERT_TRUE(testing::Barrier(session).ok());
  const auto ranks = static_cast<float>(session->members().size());
  EXPECT_EQ(Values<float>(table.value()), std::vector<float>(10, ranks));
}

TEST(TableCreation, MapsTheSameMemoryOnAllRanks) {
  RunJob(AllOf(3), [](Session* session, int /*rank*/) {
    for (int64_t id = 0; id < 3; ++id) ExpectUsable(session, id);
  });
}

TEST(TableCreation, SucceedsOnASingleRank) {
  RunJob(AllOf(1), [](Session* session, int /*rank*/) { ExpectUsable(session, 0); });
}

TEST(TableCreation, UsesTheInitialValueOfTheMasterOnly) {
  RunJob({Role::kServer, Role::kAll, Role::kWorker}, [](Session* session, int rank) {
    ASSERT_EQ(session->members().master_rank(), 1);
    for (const int64_t size : {1, 3, 100003}) {
      std::vector<double> init(static_cast<size_t>(size));
      std::iota(init.begin(), init.end(), 1000000.0 * rank);
      const Result<Table*> table =
          Create(session, ArrayOf(size, DType::kFloat64), rank == 2 ? nullptr : init.data());
      ASSERT_TRUE(table.ok()) << table.status().text();
      // In force at once, without a barrier.
      std::iota(init.begin(), init.end(), 1000000.0);
      EXPECT_EQ(Values<double>(table.value()), init) << "rank " << rank;
    }
  });
}

TEST(TableCreation, StartsAtZeroWithoutAnInitialValueOfTheMaster) {
  RunJob(AllOf(2), [](Session* session, int rank) {
    const std::vector<float> init(5, 7);
    const Result<Table*> table = Create(session, ArrayOf(5), rank == 1 ? init.data() : nullptr);
    ASSERT_TRUE(table.ok());
    EXPECT_EQ(Values<float>(table.value()), std::vector<float>(5, 0));
  });
}

TEST(TableCreation, StoresInitialValuesWithoutTheUpdater) {
  RunJob(AllOf(1), [](Session* session, int /*rank*/) {
    TableSpec spec = ArrayOf(2);
    spec.updater = static_cast<int32_t>(UpdaterKind::kSgd);
    spec.hyper[kLearningRate] = 0.5;
    const std::vector<float> init = {3, 4};
    const Result<Table*> table = Create(session, spec, init.data());
    ASSERT_TRUE(table.ok());
    EXPECT_EQ(Values<float>(table.value()), init);
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
      EXPECT_TRUE(Contains(status, "rank 2 for " + named.Describe())) << status.text();
    }
    ExpectUsable(session, 0);
  });
}

TEST(TableCreation, NamesTheRankThatAskedForAnInvalidTable) {
  RunJob(AllOf(3), [](Session* session, int rank) {
    for (int wrong = 0; wrong < 3; ++wrong) {
      const Status status = Create(session, ArrayOf(rank == wrong ? 0 : 5)).status();
      if (rank == wrong) {
        EXPECT_EQ(status.code(), Code::kValue);
        EXPECT_TRUE(Contains(status, "received 0 x 1")) << status.text();
        continue;
      }
      EXPECT_EQ(status.code(), Code::kMismatch);
      EXPECT_TRUE(Contains(status, "of 0 float32, updater add (invalid)")) << status.text();
      EXPECT_TRUE(Contains(status, "of 5 float32, updater add")) << status.text();
      EXPECT_TRUE(Contains(status, StrCat("rank ", wrong))) << status.text();
    }
    ExpectUsable(session, 0);
  });
}

TEST(TableCreation, ReportsAnInvalidTableOnEachRankThatAskedForIt) {
  RunJob(AllOf(2), [](Session* session, int rank) {
    const Status status = Create(session, MatrixOf(5, -1)).status();
    EXPECT_EQ(status.code(), Code::kValue);
    EXPECT_TRUE(Contains(status, StrCat("rank ", rank))) << status.text();
    ExpectUsable(session, 0);
  });
}

TEST(TableCreation, ReportsTheBytesOfATableThatExceedsTheMemory) {
  for (const int ranks : {1, 3}) {
    RunJob(AllOf(ranks), [](Session* session, int /*rank*/) {
      for (const int64_t size : {MemoryCeiling() / 8 + 1, int64_t{1} << 59}) {
        const Status status = Create(session, ArrayOf(size, DType::kInt64)).status();
        EXPECT_EQ(status.code(), Code::kMemory) << status.text();
        EXPECT_TRUE(Contains(status, StrCat("of ", size, " int64"))) << status.text();
      }
      ExpectUsable(session, 0);
    });
  }
}

TEST(TableCreation, DoesNotTouchThePagesOfALargeTable) {
  RunJob(AllOf(4), [](Session* session, int rank) {
    const int64_t bytes = std::min(int64_t{8} << 30, MemoryCeiling() / 2);
    const Result<Table*> table = Create(session, ArrayOf(bytes / 4));
    ASSERT_TRUE(table.ok()) << table.status().text();
    const Segment& segment = *table.value()->here()->segment();
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
    // One rank counts while the other waits: the descriptors are those of the process.
    ASSERT_TRUE(testing::Barrier(session).ok());
    if (rank == 0) before = OpenDescriptors();
    ASSERT_TRUE(testing::Barrier(session).ok());
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(Create(session, ArrayOf(10000)).ok());
      ASSERT_FALSE(Create(session, ArrayOf(10000 + rank)).ok());
      ASSERT_FALSE(Create(session, ArrayOf(MemoryCeiling())).ok());
    }
    ASSERT_TRUE(testing::Barrier(session).ok());
    if (rank == 0) {
      EXPECT_EQ(OpenDescriptors(), before);
    }
    ASSERT_TRUE(testing::Barrier(session).ok());
  });
}

TEST(TableCreation, NamesTheRankThatDoesNotCall) {
  const auto sessions = OpenAll(3, std::chrono::seconds(1));
  std::string texts[3];
  testing::OnThreads(3, [&](int rank) {
    if (rank == 1) return;
    // So that only one of them reaches its deadline.
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const Status status = Create(sessions[static_cast<size_t>(rank)].get(), ArrayOf(5)).status();
    if (rank == 0) {
      EXPECT_EQ(status.code(), Code::kTimeout);
    }
    EXPECT_TRUE(Contains(status, "in the creation of a table for rank 1")) << status.text();
    texts[rank] = status.text();
  });
  EXPECT_EQ(texts[2], texts[0]);
  EXPECT_EQ(Create(sessions[1].get(), ArrayOf(5)).status().code(), Code::kAborted);
}

TEST(TableCreation, ReportsARankThatCallsBarrierInstead) {
  RunJob(AllOf(2), [](Session* session, int rank) {
    const Status status =
        rank == 0 ? Create(session, ArrayOf(5)).status() : testing::Barrier(session);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(Contains(status, "rank 0 called the creation of a table, rank 1 called barrier"))
        << status.text();
    ExpectUsable(session, 0);
  });
}

TEST(TableCreation, AbortsTheSessionWhenInterrupted) {
  RunJobWithoutShutdown(AllOf(2), testing::kPatience, [](Session* session, int rank) {
    if (rank == 0) {
      Interrupt interrupt = testing::InterruptAtOnce();
      EXPECT_EQ(session->CreateTable(ArrayOf(5), nullptr, &interrupt).status().text(),
                "KeyboardInterrupt");
      return;
    }
    EXPECT_TRUE(testing::Eventually([&] { return session->group()->state()->IsAborted(); }));
    const Status status = Create(session, ArrayOf(5)).status();
    EXPECT_EQ(status.code(), Code::kAborted);
    EXPECT_TRUE(Contains(status, "rank 0 aborted the session: KeyboardInterrupt"));
  });
}

}  // namespace
}  // namespace multiverso
