// What the start of a job costs: bytes that rank 0 sends, and memory on each node.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/raw_bytes.h"
#include "base/text.h"
#include "base/vote.h"
#include "counting.h"
#include "liveness/connection_plan.h"
#include "memory/segment.h"
#include "node/membership.h"
#include "node/node_memory.h"
#include "transport/communicator.h"
#include "transport/startup_transport.h"

namespace multiverso::testing {
namespace {

// The messages between the ranks of a job.
struct Mail {
  Mail(int size, bool is_mpi)
      : boxes(static_cast<size_t>(size)), sent(boxes.size()), is_like_mpi(is_mpi) {}

  std::mutex mutex;
  std::vector<std::deque<std::string>> boxes;  // by receiver
  std::vector<Sent> sent;                      // by sender
  const bool is_like_mpi;                      // and not a star around rank 0
};

class MailCommunicator final : public Communicator {
 public:
  MailCommunicator(Mail* mail, int rank) : mail_(mail), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(mail_->boxes.size()); }
  std::string Describe() const override { return "mail"; }
  bool AllRanksReachEachOther() const override { return mail_->is_like_mpi; }
  Status CountUse(int64_t* count) override {
    *count = 1;
    return Status::Ok();
  }
  Status Send(int to, int /*tag*/, std::string bytes) override {
    const std::lock_guard<std::mutex> guard(mail_->mutex);
    EXPECT_TRUE(mail_->is_like_mpi || rank_ == 0 || to == 0);
    Sent& sent = mail_->sent[static_cast<size_t>(rank_)];
    ++sent.messages;
    sent.bytes += static_cast<int64_t>(bytes.size());
    mail_->boxes[static_cast<size_t>(to)].push_back(std::move(bytes));
    return Status::Ok();
  }
  Status TryReceive(int /*tag*/, Instant, std::string* bytes, bool* got) override {
    const std::lock_guard<std::mutex> guard(mail_->mutex);
    auto& box = mail_->boxes[static_cast<size_t>(rank_)];
    *got = !box.empty();
    if (*got) {
      *bytes = std::move(box.front());
      box.pop_front();
    }
    return Status::Ok();
  }
  Status Advance() override { return Status::Ok(); }
  bool AllSent() const override { return true; }
  Status CheckCanDuplicate() const override { return Status::Ok(); }
  Status BeginDuplicate() override { return Status::Ok(); }
  Status PollDuplicate(std::unique_ptr<Messenger>*) override { return Status::Ok(); }

 private:
  Mail* mail_;
  int rank_;
};

std::unique_ptr<Transport> Open(Mail* mail, int rank) {
  return ValueOf(StartupTransport::Open(std::make_unique<MailCommunicator>(mail, rank)));
}

// Returns a limit that has passed, so that a rank sends its entry and does not wait for the list.
WaitLimit Over() { return WaitLimit::Until(Clock::now() - std::chrono::minutes(1)); }

TEST(GrowthOfStart, RanksPassOnTheListToTwoOthers) {
  for (const int ranks : {2, 3, 8, 17}) {
    for (const bool is_like_mpi : {true, false}) {
      Mail mail(ranks, is_like_mpi);
      OnThreads(ranks, [&](int rank) {
        const auto transport = Open(&mail, rank);
        for (int exchange = 0; exchange < 3; ++exchange) {
          // Entries of several lengths, of which some are empty and some equal the one before.
          const auto entry_of = [&](int each) {
            return std::string((each / 3 + exchange) % 4, 'a');
          };
          const auto all = ValueOf(transport->Exchange(entry_of(rank), Patiently()));
          ASSERT_EQ(all.size(), static_cast<size_t>(ranks));
          for (int i = 0; i < ranks; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], entry_of(i));
        }
      });
      for (int rank = 0; rank < ranks && is_like_mpi; ++rank) {
        EXPECT_LE(mail.sent[static_cast<size_t>(rank)].messages, 3 * (rank == 0 ? 2 : 3));
      }
    }
  }
}

TEST(GrowthOfStart, NamesTheRankThatDoesNotPassOnTheList) {
  Mail mail(8, /*is_mpi=*/true);
  OnThreads(8, [&](int rank) {
    const auto transport = Open(&mail, rank);
    if (rank == 1) {  // It ends after it has sent its entry, and ranks 3, 4 and 7 get no list.
      EXPECT_FALSE(transport->Exchange("", Over()).ok());
      return;
    }
    const auto limit = rank == 0 ? WaitLimit::For(std::chrono::milliseconds(500)) : Patiently();
    auto all = transport->Exchange("", limit);
    EXPECT_EQ(all.ok(), rank != 3 && rank != 4 && rank != 7);
    if (all.ok()) all = transport->Exchange("", limit);
    EXPECT_TRUE(IsError(all.status(), Code::kTimeout, "waited for rank 1; start_timeout="));
  });
}

// What a rank sends in the first two exchanges, on nodes of `per_node` ranks.
std::string HelloOf(int rank, int per_node) {
  Hello hello;
  CopyText(hello.version, "0.4.0");
  if (rank == 0) hello.session = 0x123456789abcdef0;
  CopyText(hello.host, StrCat("compute-node-", rank / per_node, ".cluster.example.org"));
  CopyText(hello.memory_domain,
           StrCat(std::hash<int>()(rank / per_node) * 0x9e3779b97f4a7c15, "-b1fd-4c19/4026531836"));
  std::string bytes;
  AppendRaw(hello, &bytes);
  return bytes;
}

std::string ReportOf(int rank, int per_node, bool has_address) {
  SegmentLocator locator;
  if (rank % per_node == 0) locator = {int64_t{1} << 21, 10'000 + rank, 7, 0, ""};
  ConnectionAddress address;
  if (has_address) {
    const int node = rank / per_node;
    std::minstd_rand random(static_cast<unsigned>(rank) + 1);
    address.process = 10'000 + rank;
    for (uint8_t& byte : address.token.bytes) byte = static_cast<uint8_t>(random() >> 8);
    CopyText(address.network, StrCat(std::hash<int>()(node) * 0x9e3779b97f4a7c15, "/4026531840"));
    address.port = static_cast<uint16_t>(random());
    address.num_addresses = 1;
    address.addresses[0] = {NetworkAddress::kIpV4,
                            {10, static_cast<uint8_t>(node / 250), static_cast<uint8_t>(node)}};
  }
  std::string bytes;
  AppendRaw(Vote(), &bytes);
  AppendRaw(locator, &bytes);
  AppendRaw(address, &bytes);
  return bytes;
}

// Returns the bytes that rank 0 sends in a start. The other ranks do not wait for the list.
int64_t BytesOfStart(int nodes, int per_node, bool is_like_mpi) {
  const int ranks = nodes * per_node;
  Mail mail(ranks, is_like_mpi);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < ranks; ++rank) transports.push_back(Open(&mail, rank));
  for (int exchange = 0; exchange < 3; ++exchange) {
    for (int rank = ranks - 1; rank >= 0; --rank) {
      const std::string mine = exchange == 0   ? HelloOf(rank, per_node)
                               : exchange == 1 ? ReportOf(rank, per_node, nodes > 1)
                                               : "";
      const auto all =
          transports[static_cast<size_t>(rank)]->Exchange(mine, rank == 0 ? Patiently() : Over());
      EXPECT_EQ(all.ok(), rank == 0) << all.status().text();
    }
    for (auto& box : mail.boxes) box.clear();
  }
  return mail.sent[0].bytes;
}

// At its limit: the list has what differs between nodes and between ranks.
TEST(GrowthOfStart, RankZeroSendsTheListTwiceWithoutPadding) {
  EXPECT_LE(BytesOfStart(1024, 1, true), 400'000);
  EXPECT_LE(BytesOfStart(16, 64, true), 400'000);
  EXPECT_LE(BytesOfStart(1000, 64, true), 20'000'000);
  const int64_t of_1000 = BytesOfStart(1000, 1, true);
  EXPECT_NEAR(static_cast<double>(BytesOfStart(2000, 1, true)), 2.0 * static_cast<double>(of_1000),
              0.05 * static_cast<double>(of_1000));
}

// Without MPI rank 0 sends the list to every rank, but the ranks are on one node and send the same.
TEST(GrowthOfStart, RankZeroSendsAShortListOfOneNode) {
  const int64_t of_64 = BytesOfStart(1, 64, false) / 63;
  EXPECT_LE(1023 * of_64, 1'000'000);
}

// The segment of a node has a slot for each rank of the job, and recorders only for its own ranks.
TEST(GrowthOfStart, ControlSegmentHasRecordersOfTheRanksOfItsNode) {
  constexpr int kPerNode = 64;
  constexpr auto kSlot = static_cast<double>(sizeof(RankSlot));
  // Segments end at the end of a large page.
  for (const int ranks : {1 << 14, 1 << 15}) {
    const int64_t bytes =
        NodeMemory::ControlBytes(2 * ranks, kPerNode) - NodeMemory::ControlBytes(ranks, kPerNode);
    EXPECT_NEAR(static_cast<double>(bytes) / ranks, kSlot, 128);
  }
}

}  // namespace
}  // namespace multiverso::testing
