#include "session/session_opening.h"

#include <gtest/gtest.h>

#include "support/jobs.h"

namespace multiverso {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::kPatience;
using testing::OnThreads;
using testing::OpenDescriptors;
using testing::OpenSession;
using testing::OptionsOf;
using testing::Roles;
using testing::Shortly;
using testing::WithoutWaiting;

// What opening gives each rank, when they do so with these options.
std::vector<Status> StatusesOf(const std::vector<SessionOptions>& options) {
  const int ranks = static_cast<int>(options.size());
  const auto hub = std::make_shared<ThreadHub>(ranks);
  std::vector<Status> statuses(options.size());
  OnThreads(ranks, [&](int rank) {
    const auto index = static_cast<size_t>(rank);
    statuses[index] = OpenSession(hub, rank, options[index]).status();
  });
  return statuses;
}

TEST(SessionOpening, TellsEveryRankWhoItIs) {
  const Roles roles = {Role::kServer, Role::kWorker, Role::kAll};
  testing::RunJob(roles, [](Session* session, int rank) {
    const Membership& members = session->members();
    EXPECT_EQ(members.rank(), rank);
    EXPECT_EQ(members.size(), 3);
    EXPECT_EQ(members.worker_id(), rank - 1);
    EXPECT_EQ(members.num_servers(), 2);
    EXPECT_EQ(members.num_nodes(), 1);
    EXPECT_EQ(session->group()->members().local_rank(), rank);
    EXPECT_EQ(session->group()->members().num_ranks_here(), 3);
  });
}

TEST(SessionOpening, WorksForOneRankAndForMany) {
  for (const int ranks : {1, 2, 13}) {
    testing::RunJob(AllOf(ranks), [&](Session* session, int /*rank*/) {
      EXPECT_TRUE(testing::Barrier(session).ok());
    });
  }
}

TEST(SessionOpening, FailsForAllWhenOptionsDiffer) {
  std::vector<SessionOptions> options(3, OptionsOf(Role::kAll, kPatience));
  options[2].timeout = kPatience * 2;
  for (const Status& status : StatusesOf(options)) {
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(Contains(status, "init: the ranks differ in timeout")) << status.text();
    EXPECT_TRUE(Contains(status, "rank 2 has 60000 ms")) << status.text();
  }
}

TEST(SessionOpening, FailsForAllWhenNobodyIsAServer) {
  for (const Status& status : StatusesOf({OptionsOf(Role::kWorker), OptionsOf(Role::kWorker)})) {
    EXPECT_EQ(status.code(), Code::kValue);
    EXPECT_TRUE(Contains(status, "2 workers and 0 servers")) << status.text();
  }
}

TEST(SessionOpening, NamesTheRankThatDoesNotCome) {
  const auto hub = std::make_shared<ThreadHub>(3);
  SessionOpening first(OptionsOf(Role::kAll), std::make_unique<ThreadTransport>(hub, 0));
  SessionOpening second(OptionsOf(Role::kAll), std::make_unique<ThreadTransport>(hub, 1));
  ASSERT_TRUE(first.Step(WithoutWaiting()).pending());
  for (SessionOpening* const opening : {&second, &first}) {
    const Status status = opening->Step(Shortly());
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_TRUE(Contains(status, "init: waited for rank 2")) << status.text();
  }
}

// One thread steps both ranks: every wait is pending, and goes on when the other has come as far.
TEST(SessionOpening, IsPendingWhileOthersAreBehind) {
  const auto hub = std::make_shared<ThreadHub>(2);
  SessionOpening first(OptionsOf(Role::kAll), std::make_unique<ThreadTransport>(hub, 0));
  SessionOpening second(OptionsOf(Role::kAll), std::make_unique<ThreadTransport>(hub, 1));
  Status one = first.Step(WithoutWaiting());
  EXPECT_TRUE(one.pending());
  Status two = Status::Pending();
  for (int step = 0; step < 10 && (one.pending() || two.pending()); ++step) {
    if (two.pending()) two = second.Step(WithoutWaiting());
    if (one.pending()) one = first.Step(WithoutWaiting());
  }
  ASSERT_TRUE(one.ok()) << one.text();
  ASSERT_TRUE(two.ok()) << two.text();
  EXPECT_NE(first.TakeSession(), nullptr);
}

TEST(SessionOpening, ThatIsCancelledAtItsLastMeetingTellsTheOthers) {
  const auto hub = std::make_shared<ThreadHub>(2);
  SessionOpening first(OptionsOf(Role::kAll), std::make_unique<ThreadTransport>(hub, 0));
  SessionOpening second(OptionsOf(Role::kAll), std::make_unique<ThreadTransport>(hub, 1));
  // Until rank 1 has joined and rank 0 has not.
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(first.Step(WithoutWaiting()).pending());
    ASSERT_TRUE(second.Step(WithoutWaiting()).pending());
  }
  second.Cancel("KeyboardInterrupt");
  const Status status = first.Step(WithoutWaiting());
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_TRUE(Contains(status, "KeyboardInterrupt")) << status.text();
}

TEST(SessionOpening, AndClosingManyTimesLeavesNothingBehind) {
  for (const int ranks : {1, 2}) {
    const int before = OpenDescriptors();
    for (int cycle = 0; cycle < 100; ++cycle) {
      testing::RunJob(AllOf(ranks), [](Session* session, int /*rank*/) {
        ASSERT_TRUE(testing::Create(session, testing::ArrayOf(10)).ok());
      });
    }
    EXPECT_EQ(OpenDescriptors(), before);
  }
}

}  // namespace
}  // namespace multiverso
