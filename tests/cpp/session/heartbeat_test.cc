#include "session/heartbeat.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/limits.h"
#include "support/rank_contexts.h"

namespace multiverso::testing {
namespace {

Hello HelloWithShortTimeout() {
  Hello hello;
  hello.options.peer_timeout = std::chrono::milliseconds(50);
  return hello;
}

TEST(Heartbeat, BeatsUntilItIsDestroyed) {
  const RankContexts ranks(AllOf(2), 0, HelloWithShortTimeout());
  const auto& last_heartbeat = ranks[0]->memory()->slot(0).last_heartbeat;
  EXPECT_EQ(last_heartbeat.load(), 0);
  {
    auto heartbeat = ValueOf(Heartbeat::Start(ranks[0]));
    const int64_t first = last_heartbeat.load();
    EXPECT_GT(first, 0);
    const Instant until = Clock::now() + kPatience;
    while (last_heartbeat.load() == first && Clock::now() < until) std::this_thread::yield();
    EXPECT_GT(last_heartbeat.load(), first);
  }
  const int64_t last = last_heartbeat.load();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(last_heartbeat.load(), last);
}

}  // namespace
}  // namespace multiverso::testing
