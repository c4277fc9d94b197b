#include "liveness/connection_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "support/spanning_members.h"

namespace multiverso::testing {
namespace {

std::vector<int> RanksOf(const std::vector<ConnectionPeer>& plan) {
  std::vector<int> ranks;
  for (const ConnectionPeer& peer : plan) ranks.push_back(peer.rank);
  return ranks;
}

// Two nodes of this many ranks make a large job.
constexpr int kManyRanks = 17;

// Returns the nodes with which the first rank of `node` has connections.
std::set<int> ConnectedNodes(const std::vector<int>& sizes, int node) {
  std::set<int> nodes;
  int rank = 0;
  for (int i = 0; i < node; ++i) rank += sizes[static_cast<size_t>(i)];
  const Membership members = SpanningMembers(sizes, rank);
  for (const int peer : RanksOf(PlanConnections(members))) nodes.insert(members.node_of(peer));
  return nodes;
}

TEST(ConnectionPlan, IsTheSameOnBothSides) {
  const std::vector<std::vector<int>> jobs = {
      {1, 1}, {2, 1}, {1, 3, 2}, {2, 2, 2, 2}, {5, 1, 1, 4}, {20, 3, 14}, std::vector<int>(11, 2)};
  for (const std::vector<int>& sizes : jobs) {
    const int num_ranks = SpanningMembers(sizes, 0).size();
    for (int rank = 0; rank < num_ranks; ++rank) {
      const Membership members = SpanningMembers(sizes, rank);
      const auto plan = PlanConnections(members);
      EXPECT_FALSE(plan.empty());
      for (const ConnectionPeer& peer : plan) {
        EXPECT_NE(members.node_of(peer.rank), members.node());
        const auto theirs = PlanConnections(SpanningMembers(sizes, peer.rank));
        const auto back = std::find_if(theirs.begin(), theirs.end(),
                                       [&](const ConnectionPeer& p) { return p.rank == rank; });
        ASSERT_NE(back, theirs.end()) << rank << " and " << peer.rank;
        EXPECT_NE(back->is_called, peer.is_called);
      }
    }
  }
}

TEST(ConnectionPlan, ConnectsAllRanksOfASmallJob) {
  EXPECT_EQ(RanksOf(PlanConnections(SpanningMembers({2, 1, 3}, 2))),
            (std::vector<int>{0, 1, 3, 4, 5}));
  EXPECT_EQ(RanksOf(PlanConnections(SpanningMembers({2, 1, 3}, 4))), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(PlanConnections(SpanningMembers(std::vector<int>(32, 1), 7)).size(), 31U);
}

TEST(ConnectionPlan, ConnectsAllOfAFewNodesAndAFewOfMany) {
  for (int nodes = 2; nodes <= 7; ++nodes) {
    EXPECT_EQ(ConnectedNodes(std::vector<int>(static_cast<size_t>(nodes), kManyRanks), 0).size(),
              static_cast<size_t>(nodes - 1));
  }
  for (const size_t nodes : {8, 9, 100}) {
    const auto seen = ConnectedNodes(std::vector<int>(nodes, kManyRanks), 3);
    EXPECT_GE(seen.size(), 5U);
    EXPECT_LE(seen.size(), 6U);
  }
}

TEST(ConnectionPlan, LeavesAWitnessForEachLostNode) {
  std::mt19937 random(7);
  for (const int nodes : {8, 9, 12, 31}) {
    const std::vector<int> sizes(static_cast<size_t>(nodes), kManyRanks);
    const auto check = [&](const std::set<int>& lost) {
      for (const int node : lost) {
        const std::set<int> seen = ConnectedNodes(sizes, node);
        EXPECT_FALSE(std::includes(lost.begin(), lost.end(), seen.begin(), seen.end()))
            << nodes << " nodes, " << node << " is lost";
      }
    };
    for (int first = 0; first < nodes; ++first) {
      std::set<int> row;
      for (int i = 0; i < nodes / 2; ++i) row.insert((first + i) % nodes);
      check(row);
    }
    for (int times = 0; times < 50; ++times) {
      std::set<int> some;
      while (some.size() < 5)
        some.insert(static_cast<int>(random() % static_cast<unsigned>(nodes)));
      check(some);
    }
  }
}

TEST(ConnectionPlan, SpreadsTheRanksOfALargeNodeOverASmallOne) {
  for (int rank = 0; rank < 36; ++rank) {
    const auto plan = PlanConnections(SpanningMembers({36, 12}, rank));
    ASSERT_EQ(plan.size(), 1U);
    EXPECT_EQ(plan[0].rank, 36 + rank % 12);
    EXPECT_TRUE(plan[0].is_called);
  }
  EXPECT_EQ(RanksOf(PlanConnections(SpanningMembers({36, 12}, 37))), (std::vector<int>{1, 13, 25}));
}

TEST(ConnectionPlan, PrefersLoopbackWithinANetwork) {
  ConnectionAddress mine;
  ConnectionAddress other;
  std::strcpy(mine.network, "here");
  std::strcpy(other.network, "there");
  other.num_addresses = 1;
  other.addresses[0].family = NetworkAddress::kIpV4;
  EXPECT_TRUE(AddressesOf(mine, other).empty()) << "it has no port";
  other.port = 4711;
  ASSERT_EQ(AddressesOf(mine, other).size(), 1U);
  EXPECT_EQ(NameOf(AddressesOf(mine, other)[0]), "0.0.0.0");
  std::strcpy(other.network, "here");
  ASSERT_EQ(AddressesOf(mine, other).size(), 2U);
  EXPECT_EQ(NameOf(AddressesOf(mine, other)[0]), "127.0.0.1");
}

}  // namespace
}  // namespace multiverso::testing
