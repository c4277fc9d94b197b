#include "session/heartbeat.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/limits.h"
#include "support/node_groups.h"

namespace multiverso {
namespace {

using testing::NodeGroups;

Hello Quick() {
  Hello hello;
  hello.peer_timeout_ms = 50;
  return hello;
}

TEST(Heartbeat, BeatsUntilItIsDestroyed) {
  const NodeGroups groups(testing::AllOf(2), 0, Quick());
  const auto& heard = groups[0]->slot(0).heard;
  EXPECT_EQ(heard.load(), 0);
  {
    auto heartbeat = Heartbeat::Start(groups[0]);
    ASSERT_TRUE(heartbeat.ok()) << heartbeat.status().text();
    const int64_t first = heard.load();
    EXPECT_GT(first, 0);
    const Instant until = Clock::now() + testing::kPatience;
    while (heard.load() == first && Clock::now() < until) std::this_thread::yield();
    EXPECT_GT(heard.load(), first);
  }
  const int64_t last = heard.load();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(heard.load(), last);
}

}  // namespace
}  // namespace multiverso
