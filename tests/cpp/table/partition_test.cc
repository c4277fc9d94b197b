#include "table/partition.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/text.h"
#include "support/rank_contexts.h"

namespace multiverso::testing {
namespace {

// Returns the membership of a job whose ranks have these roles and are on these nodes.
Membership MembersOn(const std::vector<int>& nodes, const Roles& roles, int rank) {
  std::vector<std::string> hellos;
  for (size_t i = 0; i < nodes.size(); ++i) {
    Hello hello;
    hello.role = static_cast<int32_t>(roles[i]);
    CopyText(hello.memory_domain, StrCat("node ", nodes[i]));
    CopyText(hello.host, StrCat("host", nodes[i]));
    hellos.emplace_back(reinterpret_cast<const char*>(&hello), sizeof(hello));
  }
  return ValueOf(Membership::FromHellos(hellos, rank));
}

TEST(Partition, DividesRowsAmongServersByNodeAndThenByRank) {
  const Membership members = MembersOn({0, 1, 0, 1}, AllOf(4), 1);
  const Partition partition(members, 10);
  EXPECT_EQ(partition.servers(), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(partition.RowsOf(0).first, 0);
  EXPECT_EQ(partition.RowsOf(0).end, 3);
  EXPECT_EQ(partition.RowsOf(1).end, 6);
  EXPECT_EQ(partition.RowsOf(2).end, 8);
  EXPECT_EQ(partition.RowsOf(3).end, 10);
  EXPECT_EQ(partition.node_rows().first, 6);
  EXPECT_EQ(partition.node_rows().end, 10);
}

TEST(Partition, GivesTheTablesOfOneNodeToAllNodesInTurn) {
  const Membership members =
      MembersOn({0, 1, 1, 2}, {Role::kAll, Role::kAll, Role::kAll, Role::kWorker}, 0);
  EXPECT_EQ(Partition::OnOneNode(members, 9, 0).servers(), (std::vector<int>{0}));
  EXPECT_EQ(Partition::OnOneNode(members, 9, 1).servers(), (std::vector<int>{1, 2}));
  EXPECT_EQ(Partition::OnOneNode(members, 9, 2).servers(), (std::vector<int>{0}));
}

TEST(Partition, GivesAllRowsToTheFirstNodeWithAServer) {
  for (int rank = 0; rank < 4; ++rank) {
    const Membership members =
        MembersOn({0, 1, 1, 2}, {Role::kWorker, Role::kAll, Role::kAll, Role::kAll}, rank);
    const Partition partition = Partition::OnOneNode(members, 9, 0);
    EXPECT_EQ(partition.servers(), (std::vector<int>{1, 2}));
    EXPECT_EQ(partition.RowsOf(1).end, 9);
    EXPECT_EQ(partition.node_rows().count(), rank == 1 || rank == 2 ? 9 : 0);
    EXPECT_EQ(partition.RowsSavedBy(rank, {0, 1, 2, 3}).count(), rank == 1 ? 5 : rank == 2 ? 4 : 0);
  }
}

TEST(Partition, GivesEveryRowOneNodeForAllSizes) {
  for (const std::vector<int>& node_of : {std::vector<int>{0}, {0, 0, 1}, {0, 1, 2, 2, 3, 4, 5}}) {
    const Membership members = MembersOn(node_of, AllOf(static_cast<int>(node_of.size())), 0);
    for (const int64_t rows : {1, 2, 3, 8, 9, 10, 1000}) {
      const Partition partition(members, rows);
      int64_t next = 0;
      for (size_t place = 0; place < partition.nodes().size(); ++place) {
        const RowRange range = partition.nodes()[place].rows;
        EXPECT_EQ(range.first, next);
        for (; next < range.end; ++next) EXPECT_EQ(partition.NodeOf(next), place) << rows;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

}  // namespace
}  // namespace multiverso::testing
