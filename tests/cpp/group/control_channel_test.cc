#include "group/control_channel.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <utility>

#include "group/rank_context.h"
#include "support/processes.h"
#include "support/spanning_members.h"

namespace multiverso::testing {
namespace {

// Where a messenger hangs.
enum class HangsIn { kTake, kTest };

// A messenger whose Take() or Test() returns only when the test releases it.
class HangingMessenger final : public Messenger {
 public:
  explicit HangingMessenger(std::shared_future<void> release, HangsIn call = HangsIn::kTake)
      : release_(std::move(release)), call_(call) {}

  bool hangs() const { return hangs_.load(); }

  int rank() const override { return 0; }
  int size() const override { return 2; }
  Status Send(int, int, const void*, int64_t, Ticket*) override { return Status::Ok(); }
  Status Receive(int, int, void*, int64_t, Ticket*) override { return Status::Ok(); }
  Status Test(Ticket*, bool* done, int64_t*) override {
    if (call_ == HangsIn::kTest) Hang();
    *done = true;
    return Status::Ok();
  }
  Withdrawn Withdraw(Ticket*) override { return Withdrawn::kCancelled; }
  Status Take(int, int, int64_t, std::string*, bool* got) override {
    if (call_ == HangsIn::kTake) Hang();
    *got = false;
    return Status::Ok();
  }

 private:
  void Hang() {
    hangs_.store(true);
    release_.wait();
  }

  std::atomic<bool> hangs_{false};
  std::shared_future<void> release_;
  const HangsIn call_;
};

constexpr int64_t kPeerTimeoutMs = 50;

// Returns rank 0 of two ranks on separate nodes.
std::unique_ptr<RankContext> JoinAlone(std::unique_ptr<Messenger> messenger,
                                       int64_t peer_timeout_ms = kPeerTimeoutMs) {
  Hello hello;
  hello.options.peer_timeout = std::chrono::milliseconds(peer_timeout_ms);
  const int64_t bytes = NodeMemory::ControlBytes(2, 1) + NodeMemory::ScratchBytes(1, 2);
  return ValueOf(RankContext::Join(ValueOf(Segment::CreateShared(bytes)),
                                   SpanningMembers({1, 1}, 0, hello), std::move(messenger)));
}

// Rank 0, with a thread that hangs in a poll.
class StuckRank {
 public:
  explicit StuckRank(int64_t peer_timeout_ms = kPeerTimeoutMs, HangsIn call = HangsIn::kTake) {
    auto messenger = std::make_unique<HangingMessenger>(release_.get_future().share(), call);
    const HangingMessenger& hanging = *messenger;
    rank_ = JoinAlone(std::move(messenger), peer_timeout_ms);
    rank_->failure_detector()->Beat();
    polling_thread_ = std::thread([&] {
      while (!hanging.hangs()) (void)rank_->control_channel()->Poll();
    });
    EXPECT_TRUE(Eventually([&] { return hanging.hangs(); }));
  }
  ~StuckRank() {
    release_.set_value();
    polling_thread_.join();
  }
  StuckRank(const StuckRank&) = delete;
  StuckRank& operator=(const StuckRank&) = delete;

  FailureDetector* failure_detector() { return rank_->failure_detector(); }
  ControlChannel* channel() { return rank_->control_channel(); }
  void LoseRank1() { rank_->state()->RecordDeath(1, "(process 7) died", -1); }
  std::string Logged() {
    ::testing::internal::CaptureStderr();
    rank_->control_channel()->WarnIfStuck();
    return ::testing::internal::GetCapturedStderr();
  }
  std::string FirstLogged() {
    std::string logged;
    EXPECT_TRUE(Eventually([&] {
      logged = Logged();
      return !logged.empty();
    }));
    return logged;
  }

 private:
  std::promise<void> release_;
  std::unique_ptr<RankContext> rank_;
  std::thread polling_thread_;
};

TEST(ControlChannel, WarnsOnceThatACallOfMpiHangs) {
  StuckRank rank;
  const std::string logged = rank.FirstLogged();
  EXPECT_TRUE(Contains(logged, "rank 0 on host0 has been in a call of MPI for"));
  EXPECT_EQ(rank.Logged(), "");
}

TEST(ControlChannel, WarnsEarlyThatACallOfMpiHangsAfterALoss) {
  StuckRank rank(/*peer_timeout_ms=*/3600 * 1000);
  rank.LoseRank1();
  EXPECT_TRUE(Contains(rank.FirstLogged(), "Lost: rank 1 on host1 (process 7) died"));
}

TEST(ControlChannel, GivesUpMessagesWhileAnotherThreadHangsInMpi) {
  for (const HangsIn call : {HangsIn::kTake, HangsIn::kTest}) {
    StuckRank rank(kPeerTimeoutMs, call);
    rank.LoseRank1();
    rank.channel()->SendLosses();
    rank.channel()->SendAndWait(
        MessageAbout(0, ControlMessage::kLeaving, rank.channel()->members()));
    rank.channel()->AnnounceClose();
  }
}

TEST(ControlChannel, DoesNotBlameMpiForItsOwnSuspension) {
  EXPECT_TRUE(Eventually([] {
    StuckRank rank;
    const int64_t limit = rank.failure_detector()->warns_after().count();
    // A rank without heartbeats appears to have been suspended, so it must not blame MPI yet.
    std::this_thread::sleep_for(std::chrono::nanoseconds(2 * limit));
    const int64_t began = NanosecondsNow();
    rank.failure_detector()->Beat();
    const std::string logged = rank.Logged();
    // If this thread was suspended after `began`, a warning is due again and the test is repeated.
    if (NanosecondsNow() - began >= limit) return false;
    EXPECT_EQ(logged, "");
    EXPECT_NE(rank.FirstLogged(), "");
    return true;
  }));
}

TEST(ControlChannel, IsQuietWhenCallsReturn) {
  std::promise<void> release;
  release.set_value();
  const auto rank = JoinAlone(std::make_unique<HangingMessenger>(release.get_future().share()));
  (void)rank->control_channel()->Poll();
  std::this_thread::sleep_for(2 * rank->failure_detector()->warns_after());
  ::testing::internal::CaptureStderr();
  rank->control_channel()->WarnIfStuck();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace multiverso::testing
