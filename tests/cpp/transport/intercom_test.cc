#include "transport/intercom.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "support/limits.h"
#include "support/spanning_members.h"
#include "transport/node_group.h"

namespace multiverso {
namespace {

using testing::Eventually;
using testing::SpanningMembers;

// A network in which nothing moves: it does not come back from a look for messages until it is let.
class StandingMessenger final : public Messenger {
 public:
  explicit StandingMessenger(std::shared_future<void> let) : let_(std::move(let)) {}

  int rank() const override { return 0; }
  int size() const override { return 2; }
  Status Send(int, int, const void*, int64_t, Ticket*) override { return Status::Ok(); }
  Status Receive(int, int, void*, int64_t, Ticket*) override { return Status::Ok(); }
  Status Test(Ticket*, bool* done, int64_t*) override {
    *done = true;
    return Status::Ok();
  }
  bool Withdraw(Ticket*) override { return true; }
  Status Take(int, int, int64_t, std::string*, bool* got) override {
    let_.wait();
    *got = false;
    return Status::Ok();
  }

 private:
  std::shared_future<void> let_;
};

// Rank 0 of two, each alone on its node; it may be silent for 50 ms, a third of it unmentioned.
std::unique_ptr<NodeGroup> Alone(std::unique_ptr<Messenger> messenger) {
  Hello hello;
  hello.peer_timeout_ms = 50;
  Result<Segment> control =
      Segment::CreateShared(NodeGroup::ControlBytes(2) + NodeGroup::ScratchBytes(1));
  EXPECT_TRUE(control.ok()) << control.status().text();
  Result<std::unique_ptr<NodeGroup>> group = NodeGroup::Join(
      std::move(control.value()), SpanningMembers({1, 1}, 0, hello), std::move(messenger));
  EXPECT_TRUE(group.ok()) << group.status().text();
  return std::move(group.value());
}

TEST(Intercom, SaysOnceThatACallOfTheNetworkDoesNotComeBack) {
  std::promise<void> let;
  const auto group = Alone(std::make_unique<StandingMessenger>(let.get_future().share()));
  Intercom* const intercom = group->intercom();
  std::thread polls([&] { (void)intercom->Poll(); });
  std::string logged;
  EXPECT_TRUE(Eventually([&] {
    ::testing::internal::CaptureStderr();
    intercom->WarnIfStuck();
    logged = ::testing::internal::GetCapturedStderr();
    return !logged.empty();
  }));
  EXPECT_NE(logged.find("rank 0 on host0 has been in a call of MPI for"), std::string::npos)
      << logged;
  ::testing::internal::CaptureStderr();
  intercom->WarnIfStuck();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  let.set_value();
  polls.join();
}

TEST(Intercom, SaysNothingOfCallsThatComeBack) {
  std::promise<void> let;
  let.set_value();
  const auto group = Alone(std::make_unique<StandingMessenger>(let.get_future().share()));
  (void)group->intercom()->Poll();
  std::this_thread::sleep_for(2 * group->pulse()->warns_after());
  ::testing::internal::CaptureStderr();
  group->intercom()->WarnIfStuck();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace multiverso
