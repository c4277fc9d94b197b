// Sessions on several nodes continue without ranks that leave. A rank that has left still serves
// requests for a while, because a rank that dies may also have a message in flight.
#include <gtest/gtest.h>

#include <vector>

#include "group/node_contribution.h"
#include "support/jobs.h"
#include "table/distributed_call.h"

// Tells LeakSanitizer that requests in flight to a lost rank are leaked on purpose, since a
// transport may still read them. The function is visible so that the sanitizer's library finds it.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:multiverso::ServerPipeline::Step\n";
}

namespace multiverso::testing {
namespace {

// The size of the tables, so large that each server has several chunks.
constexpr int64_t kElements = 300'000;

// Runs body(session, rank) for each rank of a job with `per_node` ranks per node.
template <class Body>
void RunSurvivingJob(const Roles& roles, int per_node, const Body& body) {
  const VirtualNodes nodes(per_node);
  SessionOptions options = OptionsOf(Role::kAll);
  options.on_loss = OnLoss::kContinue;
  RunOn(std::make_shared<ThreadHub>(static_cast<int>(roles.size()), /*delay=*/2, 7), roles, options,
        body);
}

Table* CreateLarge(Session* session) { return ValueOf(Create(session, ArrayOf(kElements))); }

class AnyRank : public ::testing::TestWithParam<int> {};

TEST_P(AnyRank, MayBeLostWithoutAnAdd) {
  const int lost = GetParam();
  RunSurvivingJob(AllOf(4), 2, [&](Session* session, int rank) {
    Table* const table = CreateLarge(session);
    for (int i = 0; i < 3; ++i) Add(table, std::vector<float>(kElements, 1));
    if (rank == lost) return session->Leave("lost");
    for (int i = 0; i < 3; ++i) Add(table, std::vector<float>(kElements, 1));
    ASSERT_TRUE(Barrier(session).ok());
    EXPECT_EQ(session->context()->peers()->LostRanks(), std::vector<int>{lost});
    EXPECT_EQ(session->context()->peers()->CurrentMaster(), lost == 0 ? 1 : 0);
    EXPECT_EQ(Values<float>(table), std::vector<float>(kElements, 21));
    Table* const late = CreateLarge(session);
    Add(late, std::vector<float>(kElements, 1));
    std::vector<double> sum(200'000, rank == 3 ? 2 : 1);
    ASSERT_TRUE(IsOk(session->Aggregate({ReduceOp::kSum, DType::kFloat64, sum.data(), 200'000})));
    EXPECT_EQ(sum, std::vector<double>(200'000, lost == 3 ? 3 : 4));
    EXPECT_EQ(Values<float>(late), std::vector<float>(kElements, 3));
    EXPECT_TRUE(IsOk(session->Close()));
  });
}

INSTANTIATE_TEST_SUITE_P(OfAJob, AnyRank, ::testing::Values(0, 1, 2, 3));

TEST(Survival, NodeMayLoseItsOnlyServer) {
  const Roles roles = {Role::kAll, Role::kAll, Role::kServer, Role::kWorker};
  RunSurvivingJob(roles, 2, [&](Session* session, int rank) {
    Table* const table = CreateLarge(session);
    if (rank == 2) return session->Leave("lost");
    Add(table, std::vector<float>(kElements, 1));
    ASSERT_TRUE(Barrier(session).ok());
    EXPECT_EQ(Values<float>(table), std::vector<float>(kElements, 3));
    EXPECT_TRUE(IsOk(session->Close()));
  });
}

TEST(Survival, NodeMayLoseItsOnlyWorker) {
  const Roles roles = {Role::kAll, Role::kAll, Role::kServer, Role::kWorker};
  RunSurvivingJob(roles, 2, [&](Session* session, int rank) {
    CreateLarge(session);
    if (rank == 3) return session->Leave("lost");
    if (rank < 2) {
      std::vector<float> sum(10, 1);
      ASSERT_TRUE(session->Aggregate({ReduceOp::kSum, DType::kFloat32, sum.data(), 10}).ok());
      EXPECT_EQ(sum, std::vector<float>(10, 2));
    }
    EXPECT_TRUE(IsOk(session->Close()));
  });
}

TEST(Survival, CallWithoutATagForTheSubstituteOfAServerFailsAlone) {
  RunSurvivingJob(AllOf(4), 2, [&](Session* session, int rank) {
    Table* const table = CreateLarge(session);
    if (rank == 2) return session->Leave("lost");
    ASSERT_TRUE(Barrier(session).ok());
    if (rank == 0) {
      CallTags* const tags = session->context()->control_channel()->tags();
      std::vector<int> taken;
      for (int tag = tags->Take().tag; tag >= 0; tag = tags->Take().tag) taken.push_back(tag);
      // The call itself has a tag.
      tags->GiveBack(taken.back());
      taken.pop_back();
      std::vector<float> values(kElements);
      EXPECT_TRUE(IsError(Call(table, Request::Get(values.data())), Code::kState, "in flight"));
      for (const int tag : taken) tags->GiveBack(tag);
    }
    EXPECT_EQ(Values<float>(table), std::vector<float>(kElements, 0));
    EXPECT_TRUE(IsOk(session->Close()));
  });
}

TEST(Survival, LosingAWholeNodeEndsTheSession) {
  RunSurvivingJob(AllOf(3), 2, [&](Session* session, int rank) {
    Table* const table = CreateLarge(session);
    if (rank == 2) return session->Leave("lost");
    EXPECT_TRUE(IsError(Barrier(session), Code::kPeerLost, "node 1 (rank 2 on "));
    std::vector<float> values(kElements);
    EXPECT_TRUE(IsError(Call(table, Request::Get(values.data())), Code::kPeerLost, "with rows "));
  });
}

// Packs this node's contribution to the opening of the session, or to the call after it.
bool PackHere(Session* session, std::string* bytes, uint64_t sequence = 1) {
  const RankContext& context = *session->context();
  return PackContribution(*context.memory(), context.members(), *context.peers(),
                          context.members().node(), kWorldGroup, sequence, bytes);
}

TEST(Survival, LostNodeHasTakenPartForAllOrForNone) {
  RunSurvivingJob(AllOf(4), 1, [&](Session* session, int rank) {
    if (rank == 3) {
      session->context()->world()->BeginAllgather(CollectiveKind::kBarrier);
      std::string contribution;
      ASSERT_TRUE(PackHere(session, &contribution, 2));
      // The node is lost before it sends its contribution to ranks 0 and 2.
      ASSERT_TRUE(session->context()
                      ->control_channel()
                      ->messenger()
                      ->Post(1, kExchangeTag, contribution)
                      .ok());
      return session->Leave("lost");
    }
    EXPECT_TRUE(IsOk(Barrier(session)));
    EXPECT_TRUE(IsError(Barrier(session), Code::kPeerLost, "node 3 (rank 3 on "));
  });
}

TEST(Survival, FailureOfARankIsTheResultOnAllNodes) {
  RunSurvivingJob(AllOf(4), 2, [&](Session* session, int rank) {
    const Status mine = rank == 2 ? Status(Code::kMemory, "no memory") : Status::Ok();
    Group* const world = session->context()->world();
    EXPECT_TRUE(IsError(world->Allgather(CollectiveKind::kBarrier, mine, Patiently()),
                        Code::kMemory, "rank 2: no memory"));
    EXPECT_TRUE(IsOk(session->Close()));
  });
}

TEST(LeaderExchange, DropsMalformedMessages) {
  RunSurvivingJob(AllOf(4), 2, [&](Session* session, int rank) {
    Messenger* const messenger = session->context()->control_channel()->messenger();
    std::string valid;
    ASSERT_TRUE(PackHere(session, &valid));
    // Messages of one rank stay in order, so rank 0 receives these before that node's contribution.
    if (rank == 2) {
      for (size_t length = 0; length < valid.size(); length += 7) {
        ASSERT_TRUE(messenger->Post(0, kExchangeTag, valid.substr(0, length)).ok());
      }
      ASSERT_TRUE(messenger->Post(0, kExchangeTag, valid + "c").ok());
      // This message belongs to an earlier allgather, so the leader must drop the message.
      ASSERT_TRUE(messenger->Post(0, kExchangeTag, valid).ok());
    }
    ASSERT_TRUE(Barrier(session).ok());
    ASSERT_TRUE(Barrier(session).ok());
    EXPECT_EQ(session->context()->control_channel()->invalid_messages() > 0, rank == 0);
    EXPECT_TRUE(IsOk(session->Close()));
  });
}

}  // namespace
}  // namespace multiverso::testing
