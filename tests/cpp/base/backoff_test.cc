#include "base/backoff.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Backoff, SleepsAnEighthOfTheTimeSinceTheLastEvent) {
  const Instant begin = Clock::now();
  const Backoff backoff(milliseconds(40), begin);
  EXPECT_EQ(backoff.Next(begin), microseconds(0));
  EXPECT_EQ(backoff.Next(begin + microseconds(59)), microseconds(0));
  EXPECT_EQ(backoff.Next(begin + microseconds(80)), microseconds(10));
  EXPECT_EQ(backoff.Next(begin + microseconds(80), microseconds(100)), microseconds(0));
  EXPECT_EQ(backoff.Next(begin + seconds(100)), milliseconds(40));
}

TEST(Backoff, SleepsLongerOnceItHasBeenIdleForLong) {
  const Instant begin = Clock::now();
  const Backoff backoff(milliseconds(40), milliseconds(250), begin);
  EXPECT_EQ(backoff.Next(begin + milliseconds(16)), milliseconds(2));
  EXPECT_EQ(backoff.Next(begin + seconds(1)), milliseconds(40));
  EXPECT_EQ(backoff.Next(begin + milliseconds(3200)), milliseconds(100));
  EXPECT_EQ(backoff.Next(begin + seconds(100)), milliseconds(250));
}

}  // namespace
}  // namespace multiverso
