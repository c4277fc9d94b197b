#include "liveness/peer_connections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "support/limits.h"
#include "support/spanning_members.h"

namespace multiverso::testing {
namespace {

constexpr auto kBriefly = std::chrono::milliseconds(1);

// The connections of all ranks of a job, in one process; a test attends to each rank in turn.
class Job {
 public:
  explicit Job(const std::vector<int>& sizes, const ConnectionTimeouts& timeouts = {}) {
    for (const int size : sizes) num_ranks_ += size;
    std::vector<std::unique_ptr<ConnectionPort>> ports;
    for (int rank = 0; rank < num_ranks_; ++rank) {
      ports.push_back(ValueOf(PeerConnections::OpenPort()));
      addresses_.push_back(ports.back()->address);
    }
    for (int rank = 0; rank < num_ranks_; ++rank) {
      connections_.push_back(
          ValueOf(PeerConnections::Open(std::move(ports[static_cast<size_t>(rank)]),
                                        SpanningMembers(sizes, rank), addresses_, timeouts)));
    }
  }

  PeerConnections* operator[](int rank) const {
    return connections_[static_cast<size_t>(rank)].get();
  }
  const ConnectionAddress& address(int rank) const { return addresses_[static_cast<size_t>(rank)]; }

  void Attend() {
    for (int rank = 0; rank < num_ranks_; ++rank) {
      if ((*this)[rank] == nullptr) continue;
      const auto record = [&](int dead, const std::string& how, int known_loss) {
        deaths[rank][dead] = how;
        if (known_loss >= 0) known_losses[rank][dead] = known_loss;
      };
      (*this)[rank]->Attend(Clock::now() + kBriefly, record);
    }
  }
  template <class Done>
  bool AttendUntil(const Done& done) {
    return Eventually([&] {
      Attend();
      return done();
    });
  }
  bool ConnectAll() {
    return AttendUntil([&] {
      return std::all_of(connections_.begin(), connections_.end(), [](const auto& connections) {
        return connections->AwaitSettled(WithoutWaiting()).ok();
      });
    });
  }
  // Closes the rank's connections, as the end of the rank's process would.
  void Drop(int rank) { connections_[static_cast<size_t>(rank)].reset(); }

  // Returns how `rank` should report the end of the process of `dead`.
  std::string ReportBy(int rank, int dead, const std::string& verb) const {
    return StrCat("(process ", address(dead).process, ") ", verb, " (its connection with rank ",
                  rank, " ended)");
  }

  // The arguments of DeathHandler, by the rank that reports a death and the rank that died.
  std::map<int, std::map<int, std::string>> deaths;
  std::map<int, std::map<int, int>> known_losses;

 private:
  int num_ranks_ = 0;
  std::vector<ConnectionAddress> addresses_;
  std::vector<std::unique_ptr<PeerConnections>> connections_;  // by rank; null if dropped
};

// A process that connects to a rank's port without belonging to the session.
class Stranger {
 public:
  explicit Stranger(const ConnectionAddress& address) {
    EXPECT_TRUE(stream_.Connect(LoopbackAddress(), address.port).ok());
  }
  bool Send(const std::string& bytes) {
    return Eventually([&] { return stream_.Send(bytes.data(), bytes.size()); });
  }
  bool WasHungUpOn() {
    char bytes[64];
    size_t count = 0;
    const auto received = stream_.Receive(bytes, sizeof(bytes), &count);
    EXPECT_NE(received, Stream::Received::kBytes);
    return received == Stream::Received::kEnd || received == Stream::Received::kError;
  }
  // Lets rank 1 of the job attend until it has disconnected this stranger.
  bool IsDisconnectedBy(const Job& job) {
    return Eventually([&] {
      job[1]->Attend(Clock::now() + kBriefly, [](int, const std::string&, int) { FAIL(); });
      return WasHungUpOn();
    });
  }

 private:
  Stream stream_;
};

TEST(PeerConnections, ReportADeathToEachConnectedRank) {
  Job job({1, 1, 2});
  ASSERT_TRUE(job.ConnectAll());
  job.Drop(1);
  ASSERT_TRUE(job.AttendUntil([&] { return job.deaths.size() == 3; }));
  for (const int rank : {0, 2, 3}) {
    ASSERT_EQ(job.deaths[rank].size(), 1U);
    EXPECT_EQ(job.deaths[rank][1], job.ReportBy(rank, 1, "died"));
  }
}

TEST(PeerConnections, DoNotReportARankThatAnnouncedItsClose) {
  for (const bool after_a_loss : {false, true}) {
    Job job({1, 1, 1});
    ASSERT_TRUE(job.ConnectAll());
    after_a_loss ? job[1]->AnnounceLoss(5) : job[1]->AnnounceClose();
    job[1]->AnnounceClose();
    job.Drop(1);
    ASSERT_TRUE(job.AttendUntil(
        [&] { return job[0]->num_established() + job[2]->num_established() == 2; }));
    // When the later death of rank 2 is reported, rank 0 has handled the close of rank 1.
    job.Drop(2);
    ASSERT_TRUE(job.AttendUntil([&] { return job.deaths[0].count(2) == 1; }));
    EXPECT_EQ(job.deaths[0].count(1), 0U);
  }
}

TEST(PeerConnections, ReportNothingToARankThatAnnouncedItsClose) {
  Job job({1, 1, 1});
  ASSERT_TRUE(job.ConnectAll());
  job[0]->AnnounceClose();
  job.Drop(1);
  ASSERT_TRUE(job.AttendUntil([&] { return job.deaths[2].count(1) == 1; }));
  EXPECT_EQ(job.deaths[0].size(), 0U);
}

TEST(PeerConnections, ReportTheLossThatARankEndedAfter) {
  Job job({2, 1, 1});
  ASSERT_TRUE(job.ConnectAll());
  job[2]->AnnounceLoss(1);
  job[2]->AnnounceLoss(3);
  job.Drop(2);
  ASSERT_TRUE(job.AttendUntil([&] { return job.deaths.size() == 3; }));
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(job.deaths[rank][2], job.ReportBy(rank, 2, "ended"));
    EXPECT_EQ(job.known_losses[rank][2], 1);
  }
}

// Rank 1 ends with unread bytes, which resets its connections instead of closing them.
TEST(PeerConnections, ReportAnEndToRanksThatKnowOfTheSameLoss) {
  Job job({1, 1});
  ASSERT_TRUE(job.ConnectAll());
  job[0]->AnnounceLoss(7);
  job[1]->AnnounceLoss(7);
  job.Drop(1);
  ASSERT_TRUE(job.AttendUntil([&] { return job.deaths[0].count(1) == 1; }));
  EXPECT_EQ(job.known_losses[0][1], 7);
}

TEST(PeerConnections, HaveEndedBeforeAnyThreadAttends) {
  Job job({1, 1});
  ASSERT_TRUE(job.ConnectAll());
  EXPECT_FALSE(job[0]->HasEnded(1));
  job.Drop(1);
  EXPECT_TRUE(Eventually([&] { return job[0]->HasEnded(1); }));
  EXPECT_TRUE(job.deaths.empty());
}

TEST(PeerConnections, HaveNotEndedAfterAnAnnouncedClose) {
  for (const int closing : {0, 1}) {
    Job job({1, 1});
    ASSERT_TRUE(job.ConnectAll());
    job[closing]->AnnounceClose();
    job[1]->Attend(Clock::now() + kBriefly, [](int, const std::string&, int) {});
    job.Drop(1);
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(job[0]->HasEnded(1));
    ASSERT_TRUE(job.AttendUntil([&] { return job[0]->num_established() == 0; }));
    EXPECT_FALSE(job[0]->HasEnded(1));
  }
}

TEST(PeerConnections, ReportNothingIfARankClosesBeforeTheyAreEstablished) {
  for (int attended = 0; attended < 6; ++attended) {
    for (const int closing : {0, 1}) {
      Job job({1, 1});
      for (int i = 0; i < attended; ++i) job.Attend();
      job[closing]->AnnounceClose();
      job[closing]->Attend(Clock::now() + kBriefly, [](int, const std::string&, int) {});
      job.Drop(closing);
      ASSERT_TRUE(job.AttendUntil([&] { return job[1 - closing]->num_established() == 0; }));
      for (int i = 0; i < 100; ++i) job.Attend();
      EXPECT_TRUE(job.deaths.empty()) << attended;
    }
  }
}

TEST(PeerConnections, DisconnectAStrangerWithoutTheToken) {
  struct Call {
    uint32_t kind = 1;
    int32_t from = 0;
    int32_t to = 1;
    int32_t lost = 0;
    ConnectionToken token;
  };
  // Rank 1 keeps its port open after the first connection, since the last rank has still to call.
  ConnectionTimeouts timeouts;
  timeouts.start = kPatience;
  timeouts.introduction = std::chrono::hours(1);  // it must not disconnect for lack of a message
  Job job({1, 1}, timeouts);
  Call call;
  call.token = job.address(1).token;
  call.token.bytes[15] ^= 1;
  for (const ConnectionToken& token : {call.token, job.address(0).token}) {
    call.token = token;
    Stranger stranger(job.address(1));
    ASSERT_TRUE(stranger.Send(MakeFrame(FrameKind::kConnection, call)));
    ASSERT_TRUE(stranger.IsDisconnectedBy(job));
  }
  // Rank 1 still accepts a rank of the session afterwards.
  ASSERT_TRUE(job.ConnectAll());
  EXPECT_EQ(job[1]->num_established(), 1);
}

TEST(PeerConnections, DisconnectASilentStranger) {
  ConnectionTimeouts timeouts;
  timeouts.introduction = std::chrono::milliseconds(1);
  timeouts.start = kPatience;
  Job job({1, 1}, timeouts);
  Stranger stranger(job.address(1));
  ASSERT_TRUE(stranger.IsDisconnectedBy(job));
}

TEST(PeerConnections, AreOptionalWhereNoRankAnswers) {
  ConnectionTimeouts timeouts;
  timeouts.start = std::chrono::milliseconds(1);
  Job job({1, 1, 1}, timeouts);
  job.Drop(2);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(job.AttendUntil([&] {
    return job[0]->AwaitSettled(WithoutWaiting()).ok() &&
           job[1]->AwaitSettled(WithoutWaiting()).ok();
  }));
  job.Attend();
  const std::string logged = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(Contains(logged, "rank 2 on host2"));
  EXPECT_TRUE(Contains(logged, "peer_timeout, 30 s"));
  EXPECT_TRUE(job.deaths.empty());
}

TEST(PeerConnections, LeaveNoOpenDescriptor) {
  const int before = OpenDescriptors();
  for (int times = 0; times < 5; ++times) {
    Job job({1, 2, 1});
    ASSERT_TRUE(job.ConnectAll());
    job[0]->AnnounceClose();
    job.Attend();
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

// The process with the connection of rank 1 is killed, but its forked child stays alive.
TEST(PeerConnections, EndWithTheProcessEvenIfAForkedChildLives) {
  auto port = ValueOf(PeerConnections::OpenPort());
  std::vector<ConnectionAddress> addresses = {port->address, {}};
  const Shared<ConnectionAddress> their_address;
  const Shared<std::atomic<bool>> has_address;
  const Shared<std::atomic<pid_t>> grandchild;
  Child child([&] {
    auto their_port = ValueOf(PeerConnections::OpenPort());
    *their_address = addresses[1] = their_port->address;
    has_address->store(true);
    auto theirs = ValueOf(
        PeerConnections::Open(std::move(their_port), SpanningMembers({1, 1}, 1), addresses));
    while (theirs->num_established() == 0) {
      theirs->Attend(Clock::now() + kBriefly, [](int, const std::string&, int) {});
    }
    const pid_t forked = fork();
    if (forked != 0) grandchild->store(forked);
    return SleepForGood();
  });
  ASSERT_TRUE(Eventually([&] { return has_address->load(); }));
  addresses[1] = *their_address;
  auto mine =
      ValueOf(PeerConnections::Open(std::move(port), SpanningMembers({1, 1}, 0), addresses));
  bool died = false;
  const auto attend = [&] {
    mine->Attend(Clock::now() + kBriefly, [&](int rank, const std::string&, int /*after*/) {
      EXPECT_EQ(rank, 1);
      died = true;
    });
  };
  ASSERT_TRUE(Eventually([&] {
    attend();
    return mine->num_established() == 1 && grandchild->load() != 0;
  }));
  EXPECT_FALSE(died);
  (void)child.Kill();
  EXPECT_TRUE(Eventually([&] {
    attend();
    return died;
  }));
  kill(grandchild->load(), SIGKILL);
}

}  // namespace
}  // namespace multiverso::testing
