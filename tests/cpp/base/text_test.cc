#include "base/text.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

TEST(SizeText, UsesTheLargestUnitThatGivesOneOrMore) {
  EXPECT_EQ(SizeText(1), "1 byte");
  EXPECT_EQ(SizeText(1023), "1023 bytes");
  EXPECT_EQ(SizeText((int64_t{1} << 20) - 1), "1.0 MiB");
  EXPECT_EQ(SizeText(25276502016), "23.5 GiB");
  EXPECT_EQ(SizeText(INT64_MAX), "8.0 EiB");
}

TEST(TimeText, RoundsToUsefulDigits) {
  EXPECT_EQ(TimeText(0.0314159), "0.031 s");
  EXPECT_EQ(TimeText(5.00231), "5.0 s");
  EXPECT_EQ(TimeText(120.4), "120 s");
}

TEST(CopyText, TruncatesAndAlwaysTerminates) {
  char text[] = "xxxx";
  CopyText(text, "abcdef");
  EXPECT_STREQ(text, "abcd");
  CopyText(text, "");
  EXPECT_STREQ(text, "");
}

}  // namespace
}  // namespace multiverso
