#include "transport/single_transport.h"

#include <gtest/gtest.h>

#include "support/limits.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

TEST(SingleTransport, NeverWaits) {
  SingleTransport transport;
  EXPECT_EQ(transport.rank(), 0);
  EXPECT_EQ(transport.size(), 1);
  EXPECT_EQ(ValueOf(transport.Exchange("hello", WithoutWaiting())),
            std::vector<std::string>{"hello"});
}

}  // namespace
}  // namespace multiverso::testing
