#include "transport/single_transport.h"

#include <gtest/gtest.h>

#include "support/limits.h"

namespace multiverso {
namespace {

TEST(SingleTransport, IsAJobOfOneThatWaitsForNobody) {
  SingleTransport transport;
  EXPECT_EQ(transport.rank(), 0);
  EXPECT_EQ(transport.size(), 1);
  std::vector<std::string> all = {"old", "old"};
  ASSERT_TRUE(transport.BeginExchange("hello").ok());
  ASSERT_TRUE(transport.PollExchange(testing::WithoutWaiting(), &all).ok());
  EXPECT_EQ(all, std::vector<std::string>{"hello"});
}

}  // namespace
}  // namespace multiverso
