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

TEST(Partition, GivesEveryRowOneOwnerForAllSizes) {
  for (int servers = 1; servers <= 9; ++servers) {
    const Membership members =
        MembersOn(std::vector<int>(static_cast<size_t>(servers), 0), AllOf(servers), 0);
    for (const int64_t rows : {1, 2, 3, 8, 9, 10, 1000}) {
      const Partition partition(members, rows, false);
      int64_t next = 0;
      for (size_t place = 0; place < partition.servers().size(); ++place) {
        const RowRange range = partition.RowsOf(place);
        EXPECT_EQ(range.first, next);
        for (int64_t row = range.first; row < range.end; ++row) {
          EXPECT_EQ(partition.OwnerOf(row), place) << servers << " servers, " << rows << " rows";
        }
        next = range.end;
      }
      EXPECT_EQ(next, rows);
      EXPECT_EQ(partition.node_rows().count(), rows);
    }
  }
}

}  // namespace
}  // namespace multiverso::testing
