#include "session/session_opening.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "base/text.h"
#include "support/jobs.h"

namespace multiverso::testing {
namespace {

// Opens a session with these options, one per rank, and returns the status of each rank.
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

TEST(SessionOpening, FailsForAllWhenOptionsDiffer) {
  std::vector<SessionOptions> options(3, OptionsOf(Role::kAll, kPatience));
  options[2].timeout = kPatience * 2;
  for (const Status& status : StatusesOf(options)) {
    EXPECT_TRUE(IsError(status, Code::kMismatch, "init: the ranks differ in timeout",
                        StrCat("rank 2 has ", options[2].timeout.count(), " ms")));
  }
}

TEST(SessionOpening, NamesTheRankThatDoesNotCome) {
  const auto hub = std::make_shared<ThreadHub>(3);
  OnThreads(2, [&](int rank) {
    EXPECT_TRUE(IsError(OpenSession(hub, rank, OptionsOf(Role::kAll, std::chrono::seconds(1))),
                        Code::kTimeout, "init: waited for rank 2"));
  });
}

TEST(SessionOpening, ReturnsWhenItIsInterrupted) {
  auto interrupt = InterruptAtOnce();
  const auto hub = std::make_shared<ThreadHub>(2);
  EXPECT_TRUE(IsError(
      OpenSession(OptionsOf(Role::kAll), std::make_unique<ThreadTransport>(hub, 0), &interrupt),
      Code::kAborted, "KeyboardInterrupt"));
}

// Calls `after` after the last exchange in the opening of a session.
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
    auto interrupt = InterruptWhen([&] { return has_joined.load(); });
    const auto after = [&] {
      if (rank == 1) has_joined.store(true);
      // Rank 0 must join only after rank 1 was interrupted.
      if (rank == 0) {
        EXPECT_TRUE(Eventually([&] { return is_interrupted.load(); }));
      }
    };
    const Status status =
        OpenSession(OptionsOf(Role::kAll), std::make_unique<WatchedTransport>(hub, rank, after),
                    rank == 1 ? &interrupt : nullptr)
            .status();
    if (rank == 1) is_interrupted.store(true);
    EXPECT_TRUE(IsError(status, Code::kAborted, "KeyboardInterrupt"));
  });
}

TEST(SessionOpening, ManyOpeningsAndClosingsLeakNoDescriptors) {
  for (const int ranks : {1, 2}) {
    const int before = OpenDescriptors();
    for (int cycle = 0; cycle < 100; ++cycle) {
      RunJob(AllOf(ranks), [](Session* session, int /*rank*/) {
        ASSERT_TRUE(Create(session, ArrayOf(10)).ok());
      });
    }
    EXPECT_EQ(OpenDescriptors(), before);
  }
}

}  // namespace
}  // namespace multiverso::testing
