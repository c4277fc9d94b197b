#include "group/session_state.h"

#include <gtest/gtest.h>

#include "support/jobs.h"
#include "support/limits.h"
#include "support/processes.h"
#include "support/rank_contexts.h"
#include "support/threads.h"

namespace multiverso::testing {
namespace {

uint32_t StateOf(const RankContexts& ranks, int rank) {
  return ranks[0]->memory()->slot(rank).state.load();
}

TEST(RankInAChild, WakesSleepingRanksWhenKilledAndIsNamed) {
  const RankContexts ranks(AllOf(2), /*absent=*/1);
  Child child([&] {
    const auto rank = ranks.Join(1);
    return SleepForGood();
  });
  ASSERT_TRUE(Eventually([&] { return StateOf(ranks, 1) == RankSlot::kAlive; }));
  const std::string died = StrCat("rank 1 (process ", child.pid(), ") died");
  OnThreads(2, [&](int me) {
    if (me == 0) {
      ranks[0]->world()->BeginAllgather(CollectiveKind::kBarrier);
      EXPECT_TRUE(IsError(ranks[0]->world()->Wait(Patiently()), Code::kPeerLost, died));
    } else {
      EXPECT_TRUE(
          Eventually([&] { return ranks[0]->memory()->slot(0).groups[0].sequence.load() == 1; }));
      EXPECT_EQ(child.Kill(), -1);
    }
  });
}

TEST(RankContext, RejectsAControlSegmentThatIsTooSmall) {
  EXPECT_TRUE(
      IsError(RankContext::Join(ValueOf(Segment::CreateShared(100)), MembersOf(AllOf(2), 0)),
              Code::kInternal));
}

TEST(RankContext, LeavesWhenItEndsWithoutHavingClosed) {
  RankContexts ranks(AllOf(3));
  ranks.Drop(1);
  EXPECT_EQ(ranks[0]->peers()->ExitReason(1), "left (left without calling shutdown)");
  ranks[2]->state()->Close();
  ranks.Drop(2);
  EXPECT_EQ(StateOf(ranks, 2), RankSlot::kClosed);
}

TEST(SessionState, KeepsTheFirstReasonForLeaving) {
  const RankContexts ranks(AllOf(2));
  OnThreads(3, [&](int me) { ranks[1]->state()->Leave(StrCat("reason ", me)); });
  const std::string why = ranks[0]->peers()->ExitReason(1);
  ranks[1]->state()->Leave("another");
  EXPECT_EQ(ranks[0]->peers()->ExitReason(1), why);
  EXPECT_EQ(why.find("left (reason "), 0U) << why;
}

TEST(SessionState, CutsReasonsThatAreTooLong) {
  const RankContexts ranks(AllOf(2));
  ranks[1]->state()->Leave(std::string(10000, 'x'));
  EXPECT_EQ(ranks[0]->peers()->ExitReason(1).size(),
            std::string("left ()").size() + sizeof(RankSlot::reason) - 1);
  ranks[1]->state()->Abort(Status(Code::kAborted, std::string(10000, 'y')));
  EXPECT_LT(ranks[0]->state()->CheckRunning(/*was_waiting=*/true).text().size(), 1000U);
}

TEST(SessionState, AbortsOnceWithTheFirstReason) {
  const RankContexts ranks(AllOf(4));
  EXPECT_TRUE(ranks[0]->state()->CheckRunning(/*was_waiting=*/true).ok());
  EXPECT_FALSE(ranks[0]->state()->IsAbortKnown());
  OnThreads(3,
            [&](int me) { ranks[me]->state()->Abort(Status(Code::kAborted, StrCat("by ", me))); });
  EXPECT_TRUE(ranks[3]->state()->IsAborted());
  EXPECT_FALSE(ranks[3]->state()->IsAbortKnown());
  const Status status = ranks[3]->state()->CheckRunning(/*was_waiting=*/true);
  EXPECT_EQ(status.code(), Code::kAborted);
  const auto by = static_cast<size_t>(ranks[0]->memory()->control()->aborted_by);
  EXPECT_EQ(status.text().find(StrCat("rank ", by, " aborted the session: by ", by)), 0U);
  EXPECT_TRUE(ranks[3]->state()->IsAbortKnown());
}

TEST(SessionState, DescribesTheRankThatAborted) {
  const RankContexts ranks(AllOf(2));
  for (const int rank : {0, 1}) ranks[rank]->failure_detector()->Beat();
  ranks[0]->memory()->RecordTable(3, "weights", /*dtype=*/0, /*rows=*/5, /*columns=*/1);
  ranks[0]->memory()->recorder()->Begin(CallOf(RequestKind::kGet), /*table=*/3, /*bytes=*/20);
  ranks[1]->memory()->recorder()->Begin(CallKind::kBarrier, /*table=*/-1, /*bytes=*/0);
  ranks[1]->memory()->RecordCheckpoint("/saved/0");
  const auto& last = ranks[0]->memory()->control()->checkpoints[1];
  ranks[1]->memory()->RecordCheckpoint("/saved/1");
  EXPECT_STREQ(last, "/saved/0");  // which another rank may be reading
  ranks[1]->state()->Abort(Status(Code::kAborted, "no reason"));
  const Status status = ranks[0]->state()->CheckRunning(/*was_waiting=*/true);
  ASSERT_NE(status.peer(), nullptr);
  EXPECT_EQ(status.peer()->rank, 1);
  EXPECT_EQ(status.peer()->host, ranks[0]->members().host_of(1));
  EXPECT_EQ(status.peer()->table, "weights");
  EXPECT_EQ(status.peer()->last_call.find("barrier"), 0U) << status.peer()->last_call;
  EXPECT_GT(status.peer()->silent_for, 0);
  EXPECT_EQ(status.peer()->checkpoint, "/saved/1");
  EXPECT_TRUE(IsError(status, Code::kAborted, "rank 1 aborted the session: no reason (rank 1 on ",
                      "; its last call: barrier", "; last heard of ",
                      "; last checkpoint: /saved/1)"));
}

TEST(SessionState, NamesTheLateRankToRanksThatWaitedForItToo) {
  const RankContexts ranks(AllOf(3));
  const Status timeout(Code::kTimeout, "waited for rank 2");
  ranks[0]->state()->Abort(ranks[0]->peers()->About(2, timeout));
  const Status waiting = ranks[1]->state()->CheckRunning(/*was_waiting=*/true);
  EXPECT_EQ(waiting.text(), timeout.text());
  ASSERT_NE(waiting.peer(), nullptr);
  EXPECT_EQ(waiting.peer()->rank, 2);
  const Status late = ranks[2]->state()->CheckRunning(/*was_waiting=*/false);
  ASSERT_NE(late.peer(), nullptr);
  EXPECT_EQ(late.peer()->rank, 0);
}

TEST(SessionState, LetsEveryRankThatLearnsOfTheAbortKnowWhoWasSilent) {
  const VirtualNodes nodes(2);
  RunJobWithoutShutdown(AllOf(4), kPatience, [](Session* session, int rank) {
    RankContext& context = *session->context();
    if (rank == 2) (void)context.state()->AbortForSilentRank(3, "barrier");
    AwaitAbort(session);
    EXPECT_TRUE(context.peers()->AnyExcludedForSilence());
  });
}

TEST(SessionState, ReportsTheAbortOfALostRankRatherThanItsLoss) {
  const RankContexts ranks(AllOf(2));
  EXPECT_EQ(ranks[0]->state()->ReportLost(1, "died").code(), Code::kPeerLost);
  ranks[1]->state()->Abort(Status(Code::kMismatch, "two calls"));
  EXPECT_TRUE(IsError(ranks[0]->state()->ReportLost(1, "died"), Code::kMismatch, "two calls"));
}

}  // namespace
}  // namespace multiverso::testing
