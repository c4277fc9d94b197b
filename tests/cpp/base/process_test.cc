#include "base/process.h"

#include <gtest/gtest.h>

#include <string>

namespace multiverso::testing {
namespace {

TEST(PlatformName, IsOneOfThree) {
  const std::string name = PlatformName();
  EXPECT_TRUE(name == "linux" || name == "posix" || name == "windows") << name;
}

TEST(AllowedCores, IsBetweenOneAndTheCoresOfTheMachine) {
  EXPECT_GE(AllowedCores(), 1);
  EXPECT_LE(AllowedCores(), OnlineCores());
}

}  // namespace
}  // namespace multiverso::testing
