#include "base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace multiverso {
namespace {

std::string Logged(const char* setting) {
  setting == nullptr ? unsetenv("MULTIVERSO_LOG") : setenv("MULTIVERSO_LOG", setting, 1);
  ::testing::internal::CaptureStderr();
  LogWarning("rank 1 died");
  unsetenv("MULTIVERSO_LOG");
  return ::testing::internal::GetCapturedStderr();
}

TEST(LogWarning, WritesOneLineToStandardError) {
  EXPECT_EQ(Logged(nullptr), "multiverso: warning: rank 1 died\n");
  EXPECT_EQ(Logged("on"), "multiverso: warning: rank 1 died\n");
}

TEST(LogWarning, IsSilencedByTheEnvironment) { EXPECT_EQ(Logged("off"), ""); }

}  // namespace
}  // namespace multiverso
