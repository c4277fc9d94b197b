#include "transport/single_transport.h"

#include <gtest/gtest.h>

#include "support/limits.h"

namespace multiverso {
namespace {

TEST(SingleTransport, NeverWaits) {
  SingleTransport transport;
  EXPECT_EQ(transport.rank(), 0);
  EXPECT_EQ(transport.size(), 1);
  const auto all = transport.Exchange("hello", testing::WithoutWaiting());
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all.value(), std::vector<std::string>{"hello"});
}

}  // namespace
}  // namespace multiverso
