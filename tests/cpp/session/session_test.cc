#include "session/session.h"

#include <gtest/gtest.h>

#include "support/jobs.h"

namespace multiverso::testing {
namespace {

TEST(Barrier, NamesTheRankThatDoesNotCome) {
  const auto sessions = OpenAll(2, std::chrono::seconds(1));
  EXPECT_TRUE(IsError(sessions[0]->Barrier(), Code::kTimeout,
                      "in barrier for rank 1, which did not call it",
                      "; timeout= of init sets how long ranks wait"));
  EXPECT_EQ(sessions[1]->Close().code(), Code::kAborted);
}

TEST(Close, DuringAnotherRanksBarrierIsAMismatchForBoth) {
  RunJobWithoutShutdown(AllOf(2), kPatience, [](Session* session, int rank) {
    EXPECT_TRUE(IsError(rank == 0 ? session->Close() : Barrier(session), Code::kMismatch,
                        "rank 0 called shutdown, rank 1 called barrier"));
    // Closing after an error counts as leaving, so the close of rank 1 reports that rank 0 left.
    if (rank == 1) {
      EXPECT_TRUE(
          IsError(session->Close(), Code::kPeerLost, "rank 0 left (shut down after an error)"));
    }
  });
}

TEST(Leave, EndsTheWaitsOfTheOtherRanksWithItsReason) {
  RunJobWithoutShutdown(AllOf(3), kPatience, [](Session* session, int rank) {
    if (rank == 1) return session->Leave("ValueError in train.py, line 7");
    EXPECT_TRUE(
        IsError(Barrier(session), Code::kPeerLost, "rank 1 left (ValueError in train.py, line 7)"));
  });
}

TEST(Leave, HappensWhenAnOpenSessionIsDestroyed) {
  RunJobWithoutShutdown(AllOf(2), kPatience, [](Session* session, int rank) {
    if (rank == 1) return;
    EXPECT_TRUE(IsError(Barrier(session), Code::kPeerLost, "left without calling shutdown"));
  });
}

TEST(Close, AfterAnAbortFailsOnlyOnRanksThatDidNotKnow) {
  RunJobWithoutShutdown(AllOf(2), kPatience, [](Session* session, int rank) {
    if (rank == 0) {
      auto interrupt = InterruptAtOnce();
      EXPECT_EQ(session->Barrier(&interrupt).text(), "KeyboardInterrupt");
      EXPECT_TRUE(session->Close().ok());
      return;
    }
    AwaitAbort(session);
    EXPECT_TRUE(
        IsError(session->Close(), Code::kAborted, "rank 0 aborted the session: KeyboardInterrupt"));
  });
}

TEST(Tables, LiveOnEachRankUntilThatRankReleasesThem) {
  RunJob(AllOf(2), [](Session* session, int rank) {
    Table* const first = ValueOf(Create(session, ArrayOf(100)));
    Table* const second = ValueOf(Create(session, ArrayOf(100)));
    EXPECT_STREQ(second->spec().name, "table 1");
    if (rank == 0) session->ReleaseTable(first);
    ASSERT_TRUE(Barrier(session).ok());
    // Rank 1 has its own mapping, so rank 1 can still use the table that rank 0 released.
    if (rank == 1) {
      Add(first, std::vector<float>(100, 1));
      EXPECT_EQ(Values<float>(first), std::vector<float>(100, 1));
      session->ReleaseTable(first);
      session->ReleaseTable(first);
    }
    // The ids of released tables are not reused.
    Table* const third = ValueOf(Create(session, ArrayOf(100)));
    EXPECT_EQ(third->id(), 2);
  });
}

TEST(Sessions, SeveralInOneProcessAreIndependent) {
  OnThreads(3, [](int job) {
    RunJob(AllOf(2), [job](Session* session, int /*rank*/) {
      Table* const table = ValueOf(Create(session, ArrayOf(50)));
      Add(table, std::vector<float>(50, static_cast<float>(job)));
      ASSERT_TRUE(Barrier(session).ok());
      EXPECT_EQ(Values<float>(table), std::vector<float>(50, static_cast<float>(2 * job)));
    });
  });
}

}  // namespace
}  // namespace multiverso::testing
