#include "node/membership.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/text.h"

namespace multiverso {
namespace {

Hello HelloOf(Role role, const std::string& memory = "m0") {
  Hello hello;
  CopyText(hello.version, "1.2.3");
  hello.abi = 1;
  hello.role = static_cast<int32_t>(role);
  hello.timeout_ms = 1000;
  CopyText(hello.host, "host of " + memory);
  CopyText(hello.memory, memory);
  return hello;
}

Result<Membership> Join(const std::vector<Hello>& hellos, int rank) {
  std::vector<std::string> bytes;
  for (const Hello& hello : hellos) {
    bytes.emplace_back(reinterpret_cast<const char*>(&hello), sizeof(hello));
  }
  return Membership::FromHellos(bytes, rank);
}

// The error that all ranks get.
Status ErrorOfAll(const std::vector<Hello>& hellos) {
  const Status first = Join(hellos, 0).status();
  for (int rank = 1; rank < static_cast<int>(hellos.size()); ++rank) {
    const Status other = Join(hellos, rank).status();
    EXPECT_EQ(other.code(), first.code());
    EXPECT_EQ(other.text(), first.text());
  }
  return first;
}

TEST(Membership, NumbersWorkersAndServersDenselyInRankOrder) {
  const std::vector<Hello> hellos = {HelloOf(Role::kServer), HelloOf(Role::kWorker),
                                     HelloOf(Role::kAll), HelloOf(Role::kServer)};
  const int workers[] = {-1, 0, 1, -1};
  const int servers[] = {0, -1, 1, 2};
  for (int rank = 0; rank < 4; ++rank) {
    const Result<Membership> members = Join(hellos, rank);
    ASSERT_TRUE(members.ok()) << members.status().text();
    EXPECT_EQ(members.value().rank(), rank);
    EXPECT_EQ(members.value().size(), 4);
    EXPECT_EQ(members.value().worker_id(), workers[rank]);
    EXPECT_EQ(members.value().server_id(), servers[rank]);
    EXPECT_EQ(members.value().is_worker(), workers[rank] >= 0);
    EXPECT_EQ(members.value().num_workers(), 2);
    EXPECT_EQ(members.value().num_servers(), 3);
    EXPECT_EQ(members.value().master_rank(), 1);
  }
}

TEST(Membership, PutsRanksThatShareMemoryOnOneNode) {
  const std::vector<Hello> hellos = {HelloOf(Role::kAll, "a"), HelloOf(Role::kAll, "b"),
                                     HelloOf(Role::kAll, "a"), HelloOf(Role::kAll, "b")};
  const Result<Membership> members = Join(hellos, 3);
  ASSERT_TRUE(members.ok());
  EXPECT_EQ(members.value().num_nodes(), 2);
  EXPECT_EQ(members.value().node(), 1);
  EXPECT_EQ(members.value().node_ranks(), (std::vector<int>{1, 3}));
  EXPECT_EQ(members.value().local_rank(), 1);
  EXPECT_EQ(members.value().node_hosts(), (std::vector<std::string>{"host of a", "host of b"}));
}

TEST(Membership, NamesRanksWithTheirHostAndNodesWithTheirRanks) {
  const std::vector<Hello> hellos = {HelloOf(Role::kAll), HelloOf(Role::kAll, "m1"),
                                     HelloOf(Role::kAll, "m1")};
  const Result<Membership> members = Join(hellos, 0);
  ASSERT_TRUE(members.ok()) << members.status().text();
  EXPECT_EQ(members.value().NameRank(2), "rank 2 on host of m1");
  EXPECT_EQ(members.value().NameNode(0), "node 0 (rank 0 on host of m0)");
  EXPECT_EQ(members.value().NameNode(1), "node 1 (ranks 1 and 2 on host of m1)");
  const Result<Membership> alone = Join({hellos[0]}, 0);
  ASSERT_TRUE(alone.ok()) << alone.status().text();
  EXPECT_EQ(alone.value().NameRank(0), "rank 0");
}

TEST(Membership, NeedsAWorkerAndAServer) {
  const Status idle = ErrorOfAll({HelloOf(Role::kServer), HelloOf(Role::kServer)});
  EXPECT_EQ(idle.code(), Code::kValue);
  EXPECT_NE(idle.text().find("0 workers and 2 servers"), std::string::npos) << idle.text();
  const Status homeless = ErrorOfAll({HelloOf(Role::kWorker)});
  EXPECT_EQ(homeless.code(), Code::kValue);
  EXPECT_NE(homeless.text().find("1 workers and 0 servers"), std::string::npos) << homeless.text();
}

TEST(Membership, RefusesRanksOfDifferentVersionsNamingBoth) {
  Hello old = HelloOf(Role::kAll);
  CopyText(old.version, "1.2.2");
  const Status status = ErrorOfAll({HelloOf(Role::kAll), HelloOf(Role::kAll), old});
  EXPECT_EQ(status.code(), Code::kMismatch);
  for (const char* part : {"rank 0 has 1.2.3", "rank 2 has 1.2.2"}) {
    EXPECT_NE(status.text().find(part), std::string::npos) << status.text();
  }
}

TEST(Membership, RefusesDifferentOptionsNamingBoth) {
  Hello mode = HelloOf(Role::kAll);
  mode.mode = 1;
  EXPECT_EQ(ErrorOfAll({HelloOf(Role::kAll), mode}).code(), Code::kMismatch);
  Hello abi = HelloOf(Role::kAll);
  abi.abi = 2;
  EXPECT_EQ(ErrorOfAll({HelloOf(Role::kAll), abi}).code(), Code::kMismatch);
  Hello timeout = HelloOf(Role::kAll);
  timeout.timeout_ms = 2000;
  const Status status = ErrorOfAll({HelloOf(Role::kAll), timeout});
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.text().find("rank 0 has 1000 ms, rank 1 has 2000 ms"), std::string::npos)
      << status.text();
}

TEST(Membership, RejectsHellosOfAnotherSize) {
  const Result<Membership> members = Membership::FromHellos({"hello"}, 0);
  EXPECT_EQ(members.status().code(), Code::kMismatch);
}

TEST(DescribeThisPlace, IsTheSameTwiceAndNotEmpty) {
  Hello first;
  Hello second;
  ASSERT_TRUE(DescribeThisPlace(&first, 0).ok());
  ASSERT_TRUE(DescribeThisPlace(&second, 1).ok());
  EXPECT_STREQ(first.memory, second.memory);
  EXPECT_GT(std::strlen(first.host), 0U);
  EXPECT_GT(std::strlen(first.memory), 10U);
}

}  // namespace
}  // namespace multiverso
