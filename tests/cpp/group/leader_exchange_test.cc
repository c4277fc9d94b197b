#include "group/leader_exchange.h"

#include <gtest/gtest.h>

#include "support/jobs.h"

namespace multiverso::testing {
namespace {

TEST(LeaderExchange, DropsMalformedMessages) {
  RunSpanningJob(AllOf(4), 2, /*delay=*/2, 7, [](Session* session, int rank) {
    const RankContext& context = *session->context();
    Messenger* const messenger = context.control_channel()->messenger();
    const auto message = [](int node, int step, uint64_t sequence, uint32_t members) {
      Contributions opening;
      opening.Append({members, CollectiveKind::kOpen, ""});
      return PackContributions(kWorldGroup, node, step, sequence, opening);
    };
    const std::string valid = message(/*node=*/1, /*step=*/0, /*sequence=*/1, /*members=*/2);
    // Messages of one rank stay in order, so rank 0 receives these before that node's contribution.
    if (rank == 2) {
      for (size_t length = 0; length < valid.size(); length += 7) {
        ASSERT_TRUE(messenger->Post(0, kExchangeTag, valid.substr(0, length)).ok());
      }
      // They are of no other node, of no step, of a call that nobody can have begun, or of other
      // members.
      for (const std::string& bytes :
           {valid + "c", message(0, 0, 2, 2), message(7, 0, 2, 2), message(1, 1, 2, 2),
            message(1, 0, 9, 2), message(1, 0, 2, 1), message(1, 0, 2, 3)}) {
        ASSERT_TRUE(messenger->Post(0, kExchangeTag, bytes).ok());
      }
      // This message belongs to an earlier allgather, so the leader must drop the message.
      ASSERT_TRUE(messenger->Post(0, kExchangeTag, valid).ok());
    }
    ASSERT_TRUE(Barrier(session).ok());
    ASSERT_TRUE(Barrier(session).ok());
    EXPECT_EQ(context.control_channel()->invalid_messages() > 0, rank == 0);
  });
}

}  // namespace
}  // namespace multiverso::testing
