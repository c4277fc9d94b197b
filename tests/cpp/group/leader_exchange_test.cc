#include "group/leader_exchange.h"

#include <gtest/gtest.h>

#include <string>

#include "group/node_contribution.h"
#include "support/jobs.h"

namespace multiverso::testing {
namespace {

TEST(LeaderExchange, DropsMalformedMessages) {
  RunSpanningJob(AllOf(4), 2, /*delay=*/2, 7, [](Session* session, int rank) {
    const RankContext& context = *session->context();
    Messenger* const messenger = context.control_channel()->messenger();
    // The contribution to the opening of the session.
    std::string valid;
    ASSERT_TRUE(PackContribution(*context.memory(), context.members(), kWorldGroup, 1, &valid));
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
    EXPECT_EQ(context.control_channel()->invalid_messages() > 0, rank == 0);
  });
}

}  // namespace
}  // namespace multiverso::testing
