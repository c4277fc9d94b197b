#include "c_api/background.h"

#include <gtest/gtest.h>

#include <future>
#include <utility>

#include "support/status.h"

namespace multiverso::c_api {
namespace {

using multiverso::testing::IsError;
using multiverso::testing::IsOk;
using multiverso::testing::ValueOf;

constexpr std::chrono::milliseconds kLong{60000};
const Status kFailure(Code::kValue, "a failure");

bool HasRoom(BackgroundQueue* queue, int64_t bytes) {
  return queue->WaitForRoom(bytes, WaitLimit::For(std::chrono::milliseconds(0))).ok();
}

WaitLimit NoTime() { return WaitLimit::For(std::chrono::milliseconds(0)); }
WaitLimit MuchTime() { return WaitLimit::For(kLong); }

std::shared_ptr<BackgroundQueue::Call> Start(BackgroundQueue* queue, int64_t bytes,
                                             std::function<Status()> body) {
  return ValueOf(queue->Start(bytes, std::move(body)));
}

// A call that ends when the test lets it.
struct HeldCall {
  std::promise<void> released;
  std::shared_future<void> release = released.get_future().share();

  std::function<Status()> body(Status result = Status::Ok()) {
    return [release = release, result]() -> Status {
      if (release.wait_for(kLong) == std::future_status::timeout) {
        return Status(Code::kTimeout, "not released");
      }
      return result;
    };
  }
};

TEST(BackgroundQueue, LimitsTheNumberOfSmallCalls) {
  BackgroundQueue queue(kLong);
  HeldCall held;
  Start(&queue, 0, held.body());
  constexpr int kMostCalls = 1 << 20;
  int calls = 1;
  for (; calls < kMostCalls && HasRoom(&queue, 0); ++calls) {
    Start(&queue, 0, [] { return Status::Ok(); });
  }
  // There are fewer calls than handles of futures.
  EXPECT_LT(calls, 1 << 16);
  held.released.set_value();
  EXPECT_TRUE(IsOk(queue.Drain(MuchTime())));
  EXPECT_TRUE(HasRoom(&queue, 0));
}

TEST(BackgroundQueue, ReportsAnException) {
  BackgroundQueue queue(kLong);
  Start(&queue, 0, []() -> Status { throw std::bad_alloc(); });
  EXPECT_TRUE(IsError(queue.Flush(MuchTime()), Code::kMemory, "out of memory"));
}

TEST(BackgroundQueue, EndsWaitsAtTheirDeadline) {
  HeldCall held;
  BackgroundQueue queue(kLong);
  const auto call = Start(&queue, 0, held.body());
  int32_t done = 1;
  EXPECT_TRUE(IsError(queue.WaitFor(call, NoTime(), &done), Code::kTimeout, "waited for 1"));
  EXPECT_EQ(done, 0);
  EXPECT_FALSE(queue.HasEnded(*call));
  EXPECT_TRUE(IsError(queue.Drain(NoTime()), Code::kTimeout, "have not ended"));
  EXPECT_TRUE(IsError(queue.Flush(NoTime()), Code::kTimeout, "have not ended"));
  held.released.set_value();
  EXPECT_TRUE(IsOk(queue.WaitFor(call, MuchTime(), &done)));
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(queue.HasEnded(*call));
}

TEST(BackgroundQueue, LimitsTheArgumentsInFlight) {
  constexpr int64_t kLarge = int64_t{200} << 20;
  HeldCall held;
  BackgroundQueue queue(kLong);
  EXPECT_TRUE(HasRoom(&queue, 2 * kLarge));  // a single call may be of any size
  Start(&queue, kLarge, held.body());
  EXPECT_TRUE(HasRoom(&queue, 1000));
  EXPECT_FALSE(HasRoom(&queue, kLarge));
  EXPECT_TRUE(IsError(queue.WaitForRoom(kLarge, NoTime()), Code::kTimeout, "waited for 1"));
  held.released.set_value();
  EXPECT_TRUE(IsOk(queue.WaitForRoom(kLarge, MuchTime())));
}

TEST(BackgroundQueue, LetsTheCallerAbortAWait) {
  HeldCall held;
  BackgroundQueue queue(kLong);
  Start(&queue, 0, held.body());
  InterruptOf interrupt([] { return std::optional<std::string>("enough"); });
  EXPECT_TRUE(
      IsError(queue.Drain(WaitLimit::Until(Instant::max(), &interrupt)), Code::kAborted, "enough"));
  held.released.set_value();
  EXPECT_TRUE(IsOk(queue.Drain(MuchTime())));
}

}  // namespace
}  // namespace multiverso::c_api
