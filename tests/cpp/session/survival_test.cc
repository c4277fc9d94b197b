// Sessions of several nodes that continue without ranks that leave. A rank that has left still
// serves for a while, as a rank that dies may have a message in flight.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "group/muster.h"
#include "support/jobs.h"
#include "table/distributed_call.h"

// Messages in flight to a lost rank (requests and control messages) are leaked on purpose, since a
// transport may still read them. The function is visible so that the sanitizer's library finds it.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:multiverso::RemoteLane::Step\nleak:multiverso::Messenger::Drain\n"
         "leak:multiverso::Messenger::Post\n";
}

namespace multiverso {
namespace {

using testing::OnThreads;
using testing::OpenSession;

constexpr int64_t kSize = 300'000;  // several chunks for each server

// Runs body(session, rank) for each rank of a job with `per_node` ranks per node.
template <class Body>
void RunSurvivingJob(const testing::Roles& roles, int per_node, const Body& body) {
  const testing::VirtualNodes nodes(per_node);
  const auto hub = std::make_shared<ThreadHub>(static_cast<int>(roles.size()), /*delay=*/2, 7);
  OnThreads(static_cast<int>(roles.size()), [&](int rank) {
    SessionOptions options = testing::OptionsOf(roles[static_cast<size_t>(rank)]);
    options.on_loss = OnLoss::kContinue;
    auto session = OpenSession(hub, rank, options);
    ASSERT_TRUE(session.ok()) << session.status().text();
    body(session.value().get(), rank);
  });
}

void Close(Session* session) {
  const Status status = session->Close();
  EXPECT_TRUE(status.ok()) << status.text();
}

Table* Create(Session* session) {
  const Result<Table*> table = testing::Create(session, testing::ArrayOf(kSize));
  EXPECT_TRUE(table.ok()) << table.status().text();
  return table.ok() ? table.value() : nullptr;
}

class AnyRank : public ::testing::TestWithParam<int> {};

TEST_P(AnyRank, MayBeLostWithoutAnAdd) {
  const int lost = GetParam();
  RunSurvivingJob(testing::AllOf(4), 2, [&](Session* session, int rank) {
    Table* const table = Create(session);
    ASSERT_NE(table, nullptr);
    for (int i = 0; i < 3; ++i) testing::Add(table, std::vector<float>(kSize, 1));
    if (rank == lost) return session->Leave("lost");
    for (int i = 0; i < 3; ++i) testing::Add(table, std::vector<float>(kSize, 1));
    ASSERT_TRUE(testing::Barrier(session).ok());
    EXPECT_EQ(session->group()->peers()->LostRanks(), std::vector<int>{lost});
    EXPECT_EQ(session->group()->peers()->CurrentMaster(), lost == 0 ? 1 : 0);
    EXPECT_EQ(testing::Values<float>(table), std::vector<float>(kSize, 21));
    Table* const late = Create(session);
    ASSERT_NE(late, nullptr);
    testing::Add(late, std::vector<float>(kSize, 1));
    std::vector<double> sum(200'000, rank == 3 ? 2 : 1);
    const Status summed = session->Aggregate(DType::kFloat64, sum.data(), 200'000);
    ASSERT_TRUE(summed.ok()) << summed.text();
    EXPECT_EQ(sum, std::vector<double>(200'000, lost == 3 ? 3 : 4));
    EXPECT_EQ(testing::Values<float>(late), std::vector<float>(kSize, 3));
    Close(session);
  });
}

INSTANTIATE_TEST_SUITE_P(OfAJob, AnyRank, ::testing::Values(0, 1, 2, 3));

TEST(Survival, NodeMayLoseItsOnlyServer) {
  const testing::Roles roles = {Role::kAll, Role::kServer, Role::kWorker};
  RunSurvivingJob({roles[0], roles[0], roles[1], roles[2]}, 2, [&](Session* session, int rank) {
    Table* const table = Create(session);
    ASSERT_NE(table, nullptr);
    if (rank == 2) return session->Leave("lost");
    testing::Add(table, std::vector<float>(kSize, 1));
    ASSERT_TRUE(testing::Barrier(session).ok());
    EXPECT_EQ(testing::Values<float>(table), std::vector<float>(kSize, 3));
    Close(session);
  });
}

TEST(Survival, NodeMayLoseItsOnlyWorker) {
  RunSurvivingJob({Role::kAll, Role::kAll, Role::kServer, Role::kWorker}, 2,
                  [&](Session* session, int rank) {
                    Table* const table = Create(session);
                    ASSERT_NE(table, nullptr);
                    if (rank == 3) return session->Leave("lost");
                    if (rank < 2) {
                      std::vector<float> sum(10, 1);
                      ASSERT_TRUE(session->Aggregate(DType::kFloat32, sum.data(), 10).ok());
                      EXPECT_EQ(sum, std::vector<float>(10, 2));
                    }
                    Close(session);
                  });
}

TEST(Survival, LosingAWholeNodeEndsTheSession) {
  RunSurvivingJob(testing::AllOf(3), 2, [&](Session* session, int rank) {
    Table* const table = Create(session);
    ASSERT_NE(table, nullptr);
    if (rank == 2) return session->Leave("lost");
    const Status met = testing::Barrier(session);
    EXPECT_EQ(met.code(), Code::kPeerLost);
    EXPECT_NE(met.text().find("node 1 (rank 2 on "), std::string::npos) << met.text();
    std::vector<float> values(kSize);
    const Status got = testing::Call(table, Request::Get(values.data()));
    EXPECT_EQ(got.code(), Code::kPeerLost);
    EXPECT_NE(got.text().find("with rows "), std::string::npos) << got.text();
  });
}

TEST(Muster, DropsMalformedMessages) {
  RunSurvivingJob(testing::AllOf(4), 2, [&](Session* session, int rank) {
    Messenger* const messenger = session->group()->control_channel()->messenger();
    std::string sound;
    ASSERT_TRUE(PackMuster(*session->group(), 0, 1, &sound));
    if (rank == 3) {
      for (size_t length = 0; length < sound.size(); length += 7) {
        ASSERT_TRUE(messenger->Post(0, kMeetingTag, sound.substr(0, length)).ok());
      }
      ASSERT_TRUE(messenger->Post(0, kMeetingTag, sound + "c").ok());
      // A message of an earlier allgather.
      ASSERT_TRUE(messenger->Post(0, kMeetingTag, sound).ok());
    }
    ASSERT_TRUE(testing::Barrier(session).ok());
    ASSERT_TRUE(testing::Barrier(session).ok());
    EXPECT_EQ(session->group()->control_channel()->dropped() > 0, rank == 0);
    Close(session);
  });
}

}  // namespace
}  // namespace multiverso
