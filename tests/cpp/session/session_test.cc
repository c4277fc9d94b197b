#include "session/session.h"

#include <gtest/gtest.h>

#include "support/jobs.h"

namespace multiverso {
namespace {

using testing::AllOf;
using testing::ArrayOf;
using testing::Barrier;
using testing::Contains;
using testing::kPatience;
using testing::RunJob;
using testing::RunJobWithoutShutdown;
using testing::Values;

TEST(Barrier, MakesEarlierAddsVisible) {
  constexpr int64_t kSize = 30000;
  constexpr int kRanks = 4;
  RunJob(AllOf(kRanks), [&](Session* session, int /*rank*/) {
    const Result<Table*> table = testing::Create(session, ArrayOf(kSize));
    ASSERT_TRUE(table.ok());
    const std::vector<float> ones(kSize, 1);
    for (int round = 1; round <= 30; ++round) {
      testing::Add(table.value(), ones);
      ASSERT_TRUE(Barrier(session).ok());
      ASSERT_EQ(Values<float>(table.value()),
                std::vector<float>(kSize, static_cast<float>(kRanks * round)));
      ASSERT_TRUE(Barrier(session).ok());
    }
  });
}

TEST(Barrier, IncludesServers) {
  RunJob({Role::kServer, Role::kWorker}, [](Session* session, int /*rank*/) {
    for (int round = 0; round < 100; ++round) ASSERT_TRUE(Barrier(session).ok());
  });
}

TEST(Barrier, NamesTheRankThatDoesNotCome) {
  const auto sessions = testing::OpenAll(2, std::chrono::seconds(1));
  const Status status = sessions[0]->Barrier();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_TRUE(Contains(status, "in barrier for rank 1, which did not call it")) << status.text();
  EXPECT_EQ(sessions[1]->Close().code(), Code::kAborted);
}

TEST(Close, DuringAnotherRanksBarrierIsAMismatchForBoth) {
  RunJobWithoutShutdown(AllOf(2), kPatience, [](Session* session, int rank) {
    const Status status = rank == 0 ? session->Close() : Barrier(session);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(Contains(status, "rank 0 called shutdown, rank 1 called barrier"));
    // Rank 0 has left.
    if (rank == 1) {
      const Status lost = session->Close();
      EXPECT_EQ(lost.code(), Code::kPeerLost);
      EXPECT_TRUE(Contains(lost, "rank 0 left (shut down after an error)")) << lost.text();
    }
  });
}

TEST(Leave, EndsTheWaitsOfTheOtherRanksWithItsReason) {
  RunJobWithoutShutdown(AllOf(3), kPatience, [](Session* session, int rank) {
    if (rank == 1) return session->Leave("ValueError in train.py, line 7");
    const Status status = Barrier(session);
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_TRUE(Contains(status, "rank 1 left (ValueError in train.py, line 7)"));
  });
}

TEST(Leave, HappensWhenAnOpenSessionIsDestroyed) {
  RunJobWithoutShutdown(AllOf(2), kPatience, [](Session* session, int rank) {
    if (rank == 1) return;
    const Status status = Barrier(session);
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_TRUE(Contains(status, "left without calling shutdown")) << status.text();
  });
}

TEST(Close, AfterAnAbortFailsOnlyOnRanksThatDidNotKnow) {
  RunJobWithoutShutdown(AllOf(2), kPatience, [](Session* session, int rank) {
    if (rank == 0) {
      Interrupt interrupt = testing::InterruptAtOnce();
      EXPECT_EQ(session->Barrier(&interrupt).text(), "KeyboardInterrupt");
      EXPECT_TRUE(session->Close().ok());
      return;
    }
    EXPECT_TRUE(testing::Eventually([&] { return session->group()->IsAborted(); }));
    const Status first = session->Close();
    EXPECT_EQ(first.code(), Code::kAborted);
    EXPECT_TRUE(Contains(first, "rank 0 gave the session up: KeyboardInterrupt"));
  });
}

TEST(Tables, LiveOnEachRankUntilThatRankReleasesThem) {
  RunJob(AllOf(2), [](Session* session, int rank) {
    const Result<Table*> first = testing::Create(session, ArrayOf(100));
    const Result<Table*> second = testing::Create(session, ArrayOf(100));
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_STREQ(second.value()->spec().name, "table 1");
    if (rank == 0) session->ReleaseTable(first.value());
    ASSERT_TRUE(Barrier(session).ok());
    // The mapping of the other rank is independent.
    if (rank == 1) {
      testing::Add(first.value(), std::vector<float>(100, 1));
      EXPECT_EQ(Values<float>(first.value()), std::vector<float>(100, 1));
      session->ReleaseTable(first.value());
      session->ReleaseTable(first.value());
    }
    // Numbers are not reused.
    const Result<Table*> third = testing::Create(session, ArrayOf(100));
    ASSERT_TRUE(third.ok());
    EXPECT_EQ(third.value()->id(), 2);
  });
}

TEST(Sessions, SeveralInOneProcessAreIndependent) {
  testing::OnThreads(3, [](int job) {
    RunJob(AllOf(2), [job](Session* session, int /*rank*/) {
      const Result<Table*> table = testing::Create(session, ArrayOf(50));
      ASSERT_TRUE(table.ok());
      testing::Add(table.value(), std::vector<float>(50, static_cast<float>(job)));
      ASSERT_TRUE(Barrier(session).ok());
      EXPECT_EQ(Values<float>(table.value()), std::vector<float>(50, static_cast<float>(2 * job)));
    });
  });
}

}  // namespace
}  // namespace multiverso
