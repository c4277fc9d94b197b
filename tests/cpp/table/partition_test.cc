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
  const Partition partition(members, 10, false);
  EXPECT_EQ(partition.servers(), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(partition.RowsOf(0).first, 0);
  EXPECT_EQ(partition.RowsOf(0).end, 3);
  EXPECT_EQ(partition.RowsOf(1).end, 6);
  EXPECT_EQ(partition.RowsOf(2).end, 8);
  EXPECT_EQ(partition.RowsOf(3).end, 10);
  EXPECT_EQ(partition.node_rows().first, 6);
  EXPECT_EQ(partition.node_rows().end, 10);
}

TEST(Partition, GivesAllRowsToTheFirstNodeWithAServer) {
  for (int rank = 0; rank < 4; ++rank) {
    const Membership members =
        MembersOn({0, 1, 1, 2}, {Role::kWorker, Role::kAll, Role::kAll, Role::kAll}, rank);
    const Partition partition(members, 9, true);
    EXPECT_EQ(partition.servers(), (std::vector<int>{1, 2}));
    EXPECT_EQ(partition.RowsOf(1).end, 9);
    EXPECT_EQ(partition.node_rows().count(), rank == 1 || rank == 2 ? 9 : 0);
    EXPECT_EQ(partition.RowsSavedBy(rank, {0, 1, 2, 3}).count(), rank == 1 ? 5 : rank == 2 ? 4 : 0);
  }
}

TEST(Partition, AssignsRowsOfLostServersToASaver) {
  // Rank 1 is not a server.
  const Membership members =
      MembersOn({0, 0, 0, 0}, {Role::kAll, Role::kWorker, Role::kAll, Role::kAll}, 0);
  for (int gone = 0; gone < 15; ++gone) {
    std::vector<int> savers;
    for (int rank = 0; rank < 4; ++rank) {
      if ((gone >> rank & 1) == 0) savers.push_back(rank);
    }
    for (const int64_t rows : {1, 4, 11}) {
      const Partition partition(members, rows, false);
      std::vector<int> written(static_cast<size_t>(rows), 0);
      for (const int rank : savers) {
        const RowRange saved = partition.RowsSavedBy(rank, savers);
        for (int64_t row = saved.first; row < saved.end; ++row) ++written[static_cast<size_t>(row)];
      }
      for (int64_t row = 0; row < rows; ++row) {
        EXPECT_EQ(written[static_cast<size_t>(row)], 1) << gone << " " << row;
      }
    }
  }
}

TEST(Partition, GivesEveryRowOneNodeForAllSizes) {
  for (int nodes = 1; nodes <= 9; ++nodes) {
    std::vector<int> node_of(static_cast<size_t>(nodes) + 1, 0);
    for (int rank = 0; rank < nodes; ++rank) node_of[static_cast<size_t>(rank) + 1] = rank;
    // The first node has two servers.
    const Membership members = MembersOn(node_of, AllOf(nodes + 1), 0);
    for (const int64_t rows : {1, 2, 3, 8, 9, 10, 1000}) {
      const Partition partition(members, rows, false);
      ASSERT_EQ(partition.nodes().size(), static_cast<size_t>(nodes));
      int64_t next = 0;
      for (size_t place = 0; place < partition.nodes().size(); ++place) {
        const Partition::NodePart& part = partition.nodes()[place];
        EXPECT_EQ(part.end_server - part.first_server, place == 0 ? 2U : 1U);
        EXPECT_EQ(part.rows.first, next);
        for (int64_t row = part.rows.first; row < part.rows.end; ++row) {
          EXPECT_EQ(partition.NodeOf(row), place) << nodes << " nodes, " << rows << " rows";
        }
        next = part.rows.end;
      }
      EXPECT_EQ(next, rows);
      EXPECT_EQ(partition.node_rows().end, partition.nodes()[0].rows.end);
    }
  }
}

}  // namespace
}  // namespace multiverso::testing
