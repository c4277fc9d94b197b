#include "group/node_group.h"

#include <gtest/gtest.h>

#include "support/limits.h"
#include "support/node_groups.h"
#include "support/processes.h"
#include "support/threads.h"

namespace multiverso {
namespace {

using testing::AllOf;
using testing::Child;
using testing::Eventually;
using testing::NodeGroups;
using testing::OnThreads;
using testing::Patiently;
using testing::Shortly;
using testing::SleepForGood;
using testing::WithoutWaiting;

uint32_t StateOf(const NodeGroups& groups, int rank) { return groups[0]->slot(rank).state.load(); }

// Rank 1 of two in a process of its own: there, and at the first meeting if told so.
class RankOne : public ::testing::Test {
 protected:
  Child Start(bool arrives = false) {
    Child child([this, arrives] {
      const auto group = groups_.Join(1);
      if (arrives) group->world()->Arrive(CollectiveKind::kBarrier);
      return SleepForGood();
    });
    EXPECT_TRUE(Eventually([&] {
      return StateOf(groups_, 1) == RankSlot::kHere &&
             (!arrives || groups_[0]->slot(1).circle[0].arrivals.load() == 1);
    }));
    return child;
  }

  NodeGroups groups_{AllOf(2), /*outside=*/1};
};

TEST_F(RankOne, ThatIsKilledEndsTheWaitWithItsName) {
  Child child = Start();
  groups_[0]->world()->Arrive(CollectiveKind::kBarrier);
  EXPECT_TRUE(groups_[0]->world()->Meet(WithoutWaiting()).pending());
  const std::string died = StrCat("(process ", child.pid(), ") died");
  ASSERT_EQ(child.Kill(), -1);
  const Status status = groups_[0]->world()->Meet(Patiently());
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.text().find("rank 1 " + died), std::string::npos) << status.text();
}

TEST_F(RankOne, ThatIsKilledWhileOthersSleepWakesThem) {
  Child child = Start();
  OnThreads(2, [&](int me) {
    if (me == 0) {
      groups_[0]->world()->Arrive(CollectiveKind::kBarrier);
      EXPECT_EQ(groups_[0]->world()->Meet(Patiently()).code(), Code::kPeerLost);
    } else {
      EXPECT_TRUE(Eventually([&] { return groups_[0]->slot(0).circle[0].arrivals.load() == 1; }));
      EXPECT_EQ(child.Kill(), -1);
    }
  });
}

TEST_F(RankOne, ThatIsKilledAfterItArrivedHasArrived) {
  Child child = Start(/*arrives=*/true);
  ASSERT_EQ(child.Kill(), -1);
  groups_[0]->world()->Arrive(CollectiveKind::kBarrier);
  EXPECT_TRUE(groups_[0]->world()->Meet(WithoutWaiting()).ok());
  groups_[0]->world()->Arrive(CollectiveKind::kBarrier);
  EXPECT_EQ(groups_[0]->world()->Meet(Patiently()).code(), Code::kPeerLost);
}

TEST_F(RankOne, ThatIsStoppedIsLateAndNotLost) {
  Child child = Start();
  ASSERT_EQ(kill(child.pid(), SIGSTOP), 0);
  groups_[0]->world()->Arrive(CollectiveKind::kBarrier);
  const Status status = groups_[0]->world()->Meet(Shortly());
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.text().find("for rank 1"), std::string::npos) << status.text();
}

TEST(NodeGroup, NumbersRanksAsTheSessionDoes) {
  const NodeGroups groups(AllOf(3));
  EXPECT_EQ(groups[2]->rank(), 2);
  EXPECT_EQ(groups[2]->local_rank(), 2);
  EXPECT_EQ(groups[2]->size(), 3);
  EXPECT_EQ(groups[1]->slot(2).pid, getpid());
}

TEST(NodeGroup, RefusesAControlSegmentThatIsTooSmall) {
  Result<Segment> small = Segment::CreateShared(100);
  ASSERT_TRUE(small.ok());
  const auto group = NodeGroup::Join(std::move(small.value()), testing::MembersOf(AllOf(2), 0));
  EXPECT_EQ(group.status().code(), Code::kInternal);
}

TEST(NodeGroup, LeavesWhenItEndsWithoutHavingClosed) {
  NodeGroups groups(AllOf(3));
  groups.Drop(1);
  EXPECT_EQ(groups[0]->peers()->ExitReason(1), "left (left without calling shutdown)");
  groups[2]->Close();
  groups.Drop(2);
  EXPECT_EQ(StateOf(groups, 2), RankSlot::kClosed);
}

TEST(NodeGroup, KeepsTheFirstReasonForLeaving) {
  const NodeGroups groups(AllOf(2));
  OnThreads(3, [&](int me) { groups[1]->Leave(StrCat("reason ", me)); });
  const std::string why = groups[0]->peers()->ExitReason(1);
  groups[1]->Leave("another");
  EXPECT_EQ(groups[0]->peers()->ExitReason(1), why);
  EXPECT_EQ(why.find("left (reason "), 0U) << why;
}

TEST(NodeGroup, CutsReasonsThatAreTooLong) {
  const NodeGroups groups(AllOf(2));
  groups[1]->Leave(std::string(10000, 'x'));
  EXPECT_EQ(groups[0]->peers()->ExitReason(1).size(),
            std::string("left ()").size() + sizeof(RankSlot::reason) - 1);
  groups[1]->Abort(Status(Code::kAborted, std::string(10000, 'y')));
  EXPECT_LT(groups[0]->CheckAborted(true).text().size(), 1000U);
}

TEST(NodeGroup, AbortsOnceWithTheFirstReason) {
  const NodeGroups groups(AllOf(4));
  EXPECT_TRUE(groups[0]->CheckAborted(true).ok());
  EXPECT_FALSE(groups[0]->AbortIsKnown());
  OnThreads(3, [&](int me) { groups[me]->Abort(Status(Code::kAborted, StrCat("by ", me))); });
  EXPECT_TRUE(groups[3]->IsAborted());
  EXPECT_FALSE(groups[3]->AbortIsKnown());
  const Status status = groups[3]->CheckAborted(true);
  EXPECT_EQ(status.code(), Code::kAborted);
  const auto by = static_cast<size_t>(groups[0]->control()->aborted_by);
  EXPECT_EQ(status.text().find(StrCat("rank ", by, " gave the session up: by ", by)), 0U);
  EXPECT_TRUE(groups[3]->AbortIsKnown());
}

TEST(NodeGroup, SaysWhatIsKnownOfTheRankThatGaveUp) {
  const NodeGroups groups(AllOf(2));
  for (const int rank : {0, 1}) groups[rank]->failure_detector()->Beat();
  groups[0]->Label(3, "weights", /*dtype=*/0, /*rows=*/5, /*columns=*/1);
  groups[0]->log()->Begin(CallOf(RequestKind::kGet), /*table=*/3, /*bytes=*/20);
  groups[1]->log()->Begin(CallKind::kBarrier, /*table=*/-1, /*bytes=*/0);
  groups[1]->RecordSaved("/saved/1");
  groups[1]->Abort(Status(Code::kAborted, "no reason"));
  const Status status = groups[0]->CheckAborted(true);
  ASSERT_NE(status.peer(), nullptr);
  EXPECT_EQ(status.peer()->rank, 1);
  EXPECT_EQ(status.peer()->host, groups[0]->members().host_of(1));
  EXPECT_EQ(status.peer()->table, "weights");
  EXPECT_EQ(status.peer()->last_call.find("barrier"), 0U) << status.peer()->last_call;
  EXPECT_GT(status.peer()->silent_for, 0);
  EXPECT_EQ(status.peer()->checkpoint, "/saved/1");
  for (const char* const text :
       {"rank 1 gave the session up: no reason (rank 1 on ", "; its last call: barrier",
        "; last heard of ", "; last checkpoint: /saved/1)"}) {
    EXPECT_NE(status.text().find(text), std::string::npos) << status.text();
  }
}

TEST(NodeGroup, WhoWaitedForALateRankToldByAnotherNamesThatRank) {
  const NodeGroups groups(AllOf(3));
  const Status timeout(Code::kTimeout, "waited for rank 2");
  groups[0]->Abort(groups[0]->peers()->About(2, timeout));
  const Status waiting = groups[1]->CheckAborted(/*was_waiting=*/true);
  EXPECT_EQ(waiting.text(), timeout.text());
  ASSERT_NE(waiting.peer(), nullptr);
  EXPECT_EQ(waiting.peer()->rank, 2);
  const Status late = groups[2]->CheckAborted(/*was_waiting=*/false);
  ASSERT_NE(late.peer(), nullptr);
  EXPECT_EQ(late.peer()->rank, 0);
}

TEST(NodeGroup, AnErrorAboutNobodyStaysOne) {
  const NodeGroups groups(AllOf(2));
  groups[1]->Abort(Status(Code::kMismatch, "two calls"));
  EXPECT_EQ(groups[0]->CheckAborted(true).peer(), nullptr);
}

}  // namespace
}  // namespace multiverso
