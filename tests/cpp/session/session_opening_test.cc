#include "session/session_opening.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>

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

// The result on each rank if the ranks open a session with these options.
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
    EXPECT_EQ(session->group()->local_rank(), rank);
    EXPECT_EQ(session->group()->size(), 3);
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

TEST(SessionOpening, FailsForAllWithoutAServer) {
  for (const Status& status : StatusesOf({OptionsOf(Role::kWorker), OptionsOf(Role::kWorker)})) {
    EXPECT_EQ(status.code(), Code::kValue);
    EXPECT_TRUE(Contains(status, "2 workers and 0 servers")) << status.text();
  }
}

TEST(SessionOpening, NamesTheRankThatDoesNotCome) {
  const auto hub = std::make_shared<ThreadHub>(3);
  OnThreads(2, [&](int rank) {
    const Status status =
        OpenSession(hub, rank, OptionsOf(Role::kAll, std::chrono::seconds(1))).status();
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_TRUE(Contains(status, "init: waited for rank 2")) << status.text();
  });
}

TEST(SessionOpening, ReturnsWhenItIsInterrupted) {
  Interrupt interrupt = testing::InterruptAtOnce();
  const auto hub = std::make_shared<ThreadHub>(2);
  const Status status =
      OpenSession(OptionsOf(Role::kAll), std::make_unique<ThreadTransport>(hub, 0), &interrupt)
          .status();
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_TRUE(Contains(status, "KeyboardInterrupt")) << status.text();
}

// Calls `after` after the last exchange of an opening.
class WatchedTransport final : public ThreadTransport {
 public:
  WatchedTransport(std::shared_ptr<ThreadHub> hub, int rank, std::function<void()> after)
      : ThreadTransport(std::move(hub), rank), after_(std::move(after)) {}

  Result<std::vector<std::string>> Exchange(const std::string& mine,
                                            const WaitLimit& limit) override {
    auto all = ThreadTransport::Exchange(mine, limit);
    if (++exchanges_ == 3) after_();
    return all;
  }

 private:
  std::function<void()> after_;
  int exchanges_ = 0;
};

TEST(SessionOpening, InterruptedAfterTheLastExchangeAbortsTheSession) {
  const auto hub = std::make_shared<ThreadHub>(2);
  std::atomic<bool> has_joined{false};
  std::atomic<bool> is_interrupted{false};
  OnThreads(2, [&](int rank) {
    Interrupt interrupt = testing::InterruptWhen([&] { return has_joined.load(); });
    const auto after = [&] {
      if (rank == 1) has_joined.store(true);
      // The other rank must have been interrupted before this one joins.
      if (rank == 0) EXPECT_TRUE(testing::Eventually([&] { return is_interrupted.load(); }));
    };
    const Status status =
        OpenSession(OptionsOf(Role::kAll), std::make_unique<WatchedTransport>(hub, rank, after),
                    rank == 1 ? &interrupt : nullptr)
            .status();
    if (rank == 1) is_interrupted.store(true);
    EXPECT_EQ(status.code(), Code::kAborted);
    EXPECT_TRUE(Contains(status, "KeyboardInterrupt")) << status.text();
  });
}

TEST(SessionOpening, ManyOpeningsAndClosingsLeakNoDescriptors) {
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
