#include "node/membership.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/clock.h"
#include "base/text.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

Hello HelloOf(Role role, const std::string& memory = "m0") {
  Hello hello;
  CopyText(hello.version, "1.2.3");
  hello.abi = 1;
  hello.role = static_cast<int32_t>(role);
  hello.options.timeout = std::chrono::seconds(1);
  CopyText(hello.host, "host of " + memory);
  CopyText(hello.memory_domain, memory);
  return hello;
}

Result<Membership> Join(const std::vector<Hello>& hellos, int rank) {
  std::vector<std::string> bytes;
  for (const Hello& hello : hellos) {
    bytes.emplace_back(reinterpret_cast<const char*>(&hello), sizeof(hello));
  }
  return Membership::FromHellos(bytes, rank);
}

// Returns the error of Join, after checking that it is the same on all ranks.
Status CommonErrorOf(const std::vector<Hello>& hellos) {
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
    const Membership members = ValueOf(Join(hellos, rank));
    EXPECT_EQ(members.rank(), rank);
    EXPECT_EQ(members.size(), 4);
    EXPECT_EQ(members.worker_id(), workers[rank]);
    EXPECT_EQ(members.server_id(), servers[rank]);
    EXPECT_EQ(members.is_worker(), workers[rank] >= 0);
    EXPECT_EQ(members.num_workers(), 2);
    EXPECT_EQ(members.num_servers(), 3);
    EXPECT_EQ(members.master_rank(), 1);
  }
}

TEST(Membership, PutsRanksThatShareMemoryOnOneNode) {
  const std::vector<Hello> hellos = {HelloOf(Role::kAll, "a"), HelloOf(Role::kAll, "b"),
                                     HelloOf(Role::kAll, "a"), HelloOf(Role::kAll, "b")};
  const Membership members = ValueOf(Join(hellos, 3));
  EXPECT_EQ(members.num_nodes(), 2);
  EXPECT_EQ(members.node(), 1);
  EXPECT_EQ(members.node_ranks(), (std::vector<int>{1, 3}));
  EXPECT_EQ(members.local_rank(), 1);
  EXPECT_EQ(members.host_of(2), "host of a");
}

TEST(Membership, RejectsDifferentVersionsAndNamesBoth) {
  Hello old = HelloOf(Role::kAll);
  CopyText(old.version, "1.2.2");
  EXPECT_TRUE(IsError(CommonErrorOf({HelloOf(Role::kAll), HelloOf(Role::kAll), old}),
                      Code::kMismatch, "rank 0 has 1.2.3", "rank 2 has 1.2.2"));
  Hello abi = HelloOf(Role::kAll);
  abi.abi = 2;
  EXPECT_EQ(CommonErrorOf({HelloOf(Role::kAll), abi}).code(), Code::kMismatch);
}

TEST(Membership, RejectsHellosOfAnotherSize) {
  EXPECT_TRUE(IsError(Membership::FromHellos({"hello"}, 0), Code::kMismatch));
}

TEST(DescribeThisPlace, IsTheSameTwiceAndNotEmpty) {
  Hello first;
  Hello second;
  ASSERT_TRUE(DescribeThisPlace(&first, 0).ok());
  ASSERT_TRUE(DescribeThisPlace(&second, 1).ok());
  EXPECT_STREQ(first.memory_domain, second.memory_domain);
  EXPECT_GT(std::strlen(first.host), 0U);
  EXPECT_GT(std::strlen(first.memory_domain), 10U);
}

}  // namespace
}  // namespace multiverso::testing
