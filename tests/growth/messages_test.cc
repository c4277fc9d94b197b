// What ranks on several nodes send each other, per call and per heartbeat. "At its limit" says that
// no protocol could send less (counting.h).
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "counting.h"
#include "support/processes.h"
#include "support/spanning_members.h"

namespace multiverso::testing {
namespace {

constexpr int kLastExchangeTag = kAnswerTag - 1;
constexpr int64_t kPiece = int64_t{512} << 10;  // the most bytes of values in a message of a sum

int64_t MessagesOfBarrier(int nodes) {
  CountedJob job(nodes, 1);
  return job
      .Count(kExchangeTag, kLastExchangeTag,
             [&] { job.OnRanks([&](int rank) { EXPECT_TRUE(IsOk(Barrier(job.session(rank)))); }); })
      .messages;
}

int64_t StepsOf(int nodes) {
  int64_t steps = 0;
  while (1 << steps < nodes) ++steps;
  return steps;
}

// At its limit: each node sends one message in each of log2 n steps.
TEST(GrowthOfMessages, BarrierIsDissemination) {
  for (const int nodes : {2, 3, 4, 8, 16})
    EXPECT_EQ(MessagesOfBarrier(nodes), nodes * StepsOf(nodes));
}

// Equal payloads are sent once, however many ranks have them.
TEST(GrowthOfMessages, BytesOfABarrierDependOnlyOnItsMessages) {
  const auto bytes_of_message = [](int nodes, int per_node) {
    CountedJob job(nodes, per_node);
    const Sent sent = job.Count(kExchangeTag, kLastExchangeTag, [&] {
      job.OnRanks([&](int rank) { EXPECT_TRUE(IsOk(Barrier(job.session(rank)))); });
    });
    EXPECT_EQ(sent.bytes % sent.messages, 0);
    return sent.bytes / sent.messages;
  };
  const int64_t bytes = bytes_of_message(2, 1);
  EXPECT_LT(bytes, 100);
  EXPECT_EQ(bytes_of_message(8, 1), bytes);
  EXPECT_EQ(bytes_of_message(4, 4), bytes);
}

TEST(GrowthOfMessages, TableCostsThreeBarriers) {
  for (const int nodes : {2, 4, 8}) {
    CountedJob job(nodes, 1);
    const Sent sent = job.Count(kExchangeTag, kLastExchangeTag,
                                [&] { (void)job.CreateTable(ArrayOf(1000 * nodes)); });
    EXPECT_EQ(sent.messages, 3 * nodes * StepsOf(nodes));
  }
}

// Returns the requests that the last worker sends for a whole array.
int64_t RequestsOfGet(int nodes, int per_node, int64_t size) {
  CountedJob job(nodes, per_node);
  const std::vector<Table*> tables = job.CreateTable(ArrayOf(size));
  return job.Count(kRequestTag, kRequestTag, [&] { (void)Values<float>(tables.back()); }).messages;
}

// At its limit: one request per node, however many ranks it has.
TEST(GrowthOfMessages, DenseCallAsksOneRankOfEachNode) {
  for (const int nodes : {2, 4}) {
    for (const int per_node : {1, 2}) {
      EXPECT_EQ(RequestsOfGet(nodes, per_node, 100'000), nodes - 1) << per_node;
    }
  }
}

// At its limit: a small array is on one node, so that the others send it one request.
TEST(GrowthOfMessages, SmallArrayIsOnOneNode) {
  for (const int nodes : {2, 4, 8}) EXPECT_EQ(RequestsOfGet(nodes, 1, 8), 1);
}

Sent SentByAggregate(int nodes, int per_node, int64_t bytes) {
  CountedJob job(nodes, per_node);
  return job.Count(kAggregateTag, kAggregateTag, [&] {
    job.OnRanks([&](int rank) {
      std::vector<float> data(static_cast<size_t>(bytes) / sizeof(float), 1);
      EXPECT_TRUE(IsOk(job.session(rank)->Aggregate(
          {ReduceOp::kSum, DType::kFloat32, data.data(), static_cast<int64_t>(data.size())})));
      EXPECT_EQ(data.back(), static_cast<float>(nodes * per_node));
    });
  });
}

// At its limit: each node sends what it has but for its own part, twice, in messages of full size,
// however many nodes and workers there are.
TEST(GrowthOfMessages, AggregateSendsThePiecesOfARound) {
  for (const auto& [nodes, per_node] : {std::pair(2, 1), {4, 1}, {8, 1}, {2, 2}}) {
    for (const int pieces : {1, 2}) {
      const int64_t bytes = pieces * nodes * kPiece;
      const Sent sent = SentByAggregate(nodes, per_node, bytes);
      EXPECT_EQ(sent.messages, 2 * pieces * nodes * (nodes - 1)) << nodes << " nodes, " << per_node;
      EXPECT_NEAR(static_cast<double>(sent.bytes), static_cast<double>(2 * bytes * (nodes - 1)),
                  static_cast<double>(100 * sent.messages));
    }
  }
}

Sent SentByRound(int nodes, int per_node, int64_t bytes) {
  CountedJob job(nodes, per_node, Mode::kSync);
  const std::vector<Table*> tables =
      job.CreateTable(ArrayOf(bytes / static_cast<int64_t>(sizeof(float))));
  return job.Count(kSumTag, kSumTag, [&] {
    job.OnRanks([&](int rank) {
      Table* table = tables[static_cast<size_t>(rank)];
      Add(table, std::vector<float>(static_cast<size_t>(table->spec().count()), 1));
      EXPECT_EQ(Values<float>(table).back(), static_cast<float>(nodes * per_node));
    });
  });
}

// At its limit: each node sends each other node that node's part of its own sum, however many
// workers it has. The calls that read the table fetch the parts of the total. Where several workers
// sum while they stage, in four parts of this table, a piece may end with each of these parts.
TEST(GrowthOfMessages, RoundSendsEachNodeItsPart) {
  constexpr int64_t kBytes = int64_t{1} << 18;
  for (const int nodes : {2, 4, 8}) {
    for (const int per_node : {1, 2}) {
      const Sent sent = SentByRound(nodes, per_node, kBytes);
      const int cuts = per_node == 1 ? 0 : 3 * nodes;
      EXPECT_GE(sent.messages, nodes * (nodes - 1)) << nodes << " nodes of " << per_node;
      EXPECT_LE(sent.messages, nodes * (nodes - 1) + cuts) << nodes << " nodes of " << per_node;
      EXPECT_NEAR(static_cast<double>(sent.bytes), static_cast<double>(kBytes * (nodes - 1)),
                  static_cast<double>(200 * sent.messages));
    }
  }
}

// A messenger that only counts, by receiver.
class Sink final : public Messenger {
 public:
  explicit Sink(std::vector<int>* received) : received_(received) {}

  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(received_->size()); }
  Status Send(int to, int tag, const void*, int64_t, Ticket*) override {
    if (tag == kControlTag) ++(*received_)[static_cast<size_t>(to)];
    return Status::Ok();
  }
  Status Receive(int, int, void*, int64_t, Ticket*) override { return Status::Ok(); }
  Status Test(Ticket*, bool* done, int64_t*) override {
    *done = true;
    return Status::Ok();
  }
  Withdrawn Withdraw(Ticket*) override { return Withdrawn::kCancelled; }
  Status Take(int, int, int64_t, std::string*, bool* got) override {
    *got = false;
    return Status::Ok();
  }

 private:
  std::vector<int>* received_;
};

// Returns rank 0 of a job of that many nodes, alone.
std::unique_ptr<RankContext> FirstOf(int nodes, int per_node, std::vector<int>* received,
                                     const Hello& hello = Hello()) {
  received->assign(static_cast<size_t>(nodes * per_node), 0);
  const int64_t bytes = NodeMemory::ControlBytes(nodes * per_node, per_node) +
                        NodeMemory::ScratchBytes(per_node, nodes);
  const std::vector<int> sizes(static_cast<size_t>(nodes), per_node);
  return ValueOf(RankContext::Join(ValueOf(Segment::CreateShared(bytes)),
                                   SpanningMembers(sizes, 0, hello),
                                   std::make_unique<Sink>(received)));
}

// One message to each other node, whatever its size.
TEST(GrowthOfMessages, HeartbeatGoesToOneRankOfEachOtherNode) {
  for (const int nodes : {4, 8, 16}) {
    for (const int per_node : {1, 2, 4}) {
      std::vector<int> received;
      const auto rank = FirstOf(nodes, per_node, &received);
      (void)rank->control_channel()->Poll();  // the first heartbeat needs no time to pass
      EXPECT_EQ(std::accumulate(received.begin(), received.end(), 0), nodes - 1);
    }
  }
}

TEST(GrowthOfMessages, ManyNodesSendHeartbeatsMoreRarely) {
  for (const int nodes : {2, 500, 750, 1000}) {
    const Membership members = SpanningMembers(std::vector<int>(static_cast<size_t>(nodes), 1), 0);
    const FailureDetector detector(nullptr, &members);
    EXPECT_EQ(detector.interval(), std::chrono::milliseconds(std::max(1000, 2 * nodes)));
  }
}

// The rank that usually receives heartbeats may be suspended, and then does not say who speaks.
TEST(GrowthOfMessages, HeartbeatGoesToAllRanksOfANodeThatIsNotHeard) {
  constexpr int kPerNode = 3;
  Hello hello;
  hello.options.peer_timeout = std::chrono::seconds(1);
  std::vector<int> received;
  const auto rank = FirstOf(3, kPerNode, &received, hello);
  rank->failure_detector()->RecordHeartbeat(1, false);
  EXPECT_TRUE(Eventually([&] {
    rank->failure_detector()->Beat();
    rank->failure_detector()->RecordHeartbeat(2, false);
    (void)rank->control_channel()->Poll();
    return received[kPerNode + 1] > 0 && received[kPerNode + 2] > 0;
  }));
  EXPECT_EQ(std::accumulate(received.end() - kPerNode + 1, received.end(), 0), 0);
}

}  // namespace
}  // namespace multiverso::testing
