#include "base/operation.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

class Countdown final : public Operation {
 public:
  Countdown(int steps, Status end) : Operation(Clock::now()), left_(steps), end_(std::move(end)) {}

  Status Step(const WaitLimit& limit) override {
    EXPECT_EQ(limit.deadline, deadline());
    EXPECT_EQ(limit.slice_end, Instant::max());
    return --left_ == 0 ? end_ : Status::Pending();
  }
  int left() const { return left_; }

 private:
  int left_;
  Status end_;
};

TEST(RunToEnd, StepsUntilTheOperationIsDone) {
  Countdown done(3, Status::Ok());
  EXPECT_TRUE(RunToEnd(&done).ok());
  EXPECT_EQ(done.left(), 0);
}

TEST(RunToEnd, EndsWithTheOperationsError) {
  Countdown failing(2, Status(Code::kPeerLost, "rank 1 died"));
  EXPECT_EQ(RunToEnd(&failing).text(), "rank 1 died");
  EXPECT_EQ(failing.left(), 0);
}

TEST(WaitLimit, EndsAtTheSliceOrTheDeadline) {
  const Instant soon = Clock::now();
  const Instant later = soon + std::chrono::seconds(1);
  EXPECT_EQ((WaitLimit{soon, later}.first()), soon);
  EXPECT_EQ((WaitLimit{later, soon}.first()), soon);
  EXPECT_EQ(WaitLimit::Until(later).first(), later);
}

}  // namespace
}  // namespace multiverso
