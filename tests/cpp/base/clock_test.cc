#include "base/clock.h"

#include <gtest/gtest.h>

#include <vector>

namespace multiverso {
namespace {

struct Part final : Abandonable {
  void GiveUp(const Status& why) override { reasons.push_back(why.text()); }
  std::vector<std::string> reasons;
};

TEST(WaitLimit, EndsAtTheSliceOrTheDeadline) {
  const Instant soon = Clock::now();
  const Instant later = soon + std::chrono::seconds(1);
  EXPECT_EQ((WaitLimit{soon, later}.earliest()), soon);
  EXPECT_EQ((WaitLimit{later, soon}.earliest()), soon);
  EXPECT_EQ(WaitLimit::Until(later).earliest(), later);
  EXPECT_TRUE((WaitLimit{later, soon}.Check(soon).pending()));
  EXPECT_TRUE(WaitLimit::Until(later).Check(later).ok());
}

TEST(Interrupt, LetsACallOfSeveralRanksFailAtItsEnd) {
  for (const bool is_collective : {true, false}) {
    InterruptOf interrupt([] { return std::optional<std::string>(""); });
    Part part;
    if (is_collective) interrupt.OnAbort(&part);
    EXPECT_TRUE(interrupt.Check(Clock::now()).ok());
    EXPECT_EQ(interrupt.Check(Clock::now() + Interrupt::kMinInterval).ok(), is_collective);
    EXPECT_TRUE(part.reasons.empty());
    EXPECT_EQ(interrupt.ResultOf(Status::Ok()).code(), Code::kAborted);
    const Status error(Code::kMemory, "no memory");
    EXPECT_EQ(interrupt.ResultOf(error).code(), is_collective ? Code::kMemory : Code::kAborted);
  }
}

TEST(Interrupt, AsksPeriodicallyUntilTheCallIsAborted) {
  int asked = 0;
  Part part;
  InterruptOf interrupt([&]() -> std::optional<std::string> {
    if (++asked < 2) return std::nullopt;
    return "enough";
  });
  interrupt.OnAbort(&part);
  const WaitLimit limit = WaitLimit::Until(Instant::max(), &interrupt);
  EXPECT_FALSE(interrupt.has_waited());
  Instant now = Clock::now();
  EXPECT_EQ(limit.NextCheck(now), now + Interrupt::kMinInterval);
  EXPECT_TRUE(interrupt.has_waited());
  EXPECT_TRUE(limit.Check(now).ok());
  EXPECT_EQ(asked, 0);
  now += Interrupt::kMinInterval;
  EXPECT_TRUE(limit.Check(now).ok());
  EXPECT_TRUE(limit.Check(now).ok());
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(limit.is_interrupted());
  for (int i = 0; i < 3; ++i) {
    now += Interrupt::kMinInterval;
    EXPECT_EQ(limit.Check(now).code(), Code::kAborted);
  }
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(part.reasons, std::vector<std::string>{"enough"});
  EXPECT_TRUE(limit.is_interrupted());
}

}  // namespace
}  // namespace multiverso
