// What the start of a job costs: bytes that rank 0 sends, and memory on each node.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "counting.h"
#include "node/node_memory.h"
#include "transport/communicator.h"
#include "transport/startup_transport.h"

namespace multiverso::testing {
namespace {

// The messages between the ranks of a job, which are threads.
struct Mail {
  explicit Mail(int size) : boxes(static_cast<size_t>(size)) {}

  std::mutex mutex;
  std::vector<std::deque<std::string>> boxes;  // by receiver
  int64_t bytes_of_rank_0 = 0;
};

class MailCommunicator final : public Communicator {
 public:
  MailCommunicator(Mail* mail, int rank) : mail_(mail), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(mail_->boxes.size()); }
  std::string Describe() const override { return "mail"; }
  Status CountUse(int64_t* count) override {
    *count = 1;
    return Status::Ok();
  }
  Status Send(int to, int /*tag*/, std::string bytes) override {
    const std::lock_guard<std::mutex> guard(mail_->mutex);
    if (rank_ == 0) mail_->bytes_of_rank_0 += static_cast<int64_t>(bytes.size());
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

// Returns the bytes that rank 0 sends in one of the three exchanges of a start.
int64_t BytesOfExchange(int ranks) {
  Mail mail(ranks);
  OnThreads(ranks, [&](int rank) {
    const auto transport =
        ValueOf(StartupTransport::Open(std::make_unique<MailCommunicator>(&mail, rank)));
    const auto all = ValueOf(transport->Exchange("I am here", Patiently()));
    EXPECT_EQ(all.size(), static_cast<size_t>(ranks));
  });
  return mail.bytes_of_rank_0;
}

// Goal: one list per node, without padding.
TEST(GrowthOfStart, RankZeroSendsEachRankAPaddedEntryOfEachRank) {
  constexpr int64_t kEntry = 1028;
  for (const int ranks : {4, 8, 16, 32}) {
    const int64_t headers = BytesOfExchange(ranks) - kEntry * ranks * (ranks - 1);
    EXPECT_EQ(headers % (ranks - 1), 0);
    EXPECT_LT(headers, 100 * (ranks - 1));
  }
}

// Goal: recorders and logs of the ranks of this node only.
TEST(GrowthOfStart, ControlSegmentHasRoomForEachRankOfTheJob) {
  // Segments end at the end of a large page.
  for (const int ranks : {1 << 14, 1 << 15}) {
    const int64_t per_rank =
        (NodeMemory::ControlBytes(2 * ranks) - NodeMemory::ControlBytes(ranks)) / ranks;
    EXPECT_NEAR(static_cast<double>(per_rank), 10'880, 128);
  }
}

}  // namespace
}  // namespace multiverso::testing
