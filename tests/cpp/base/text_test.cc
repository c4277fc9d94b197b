#include "base/text.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

TEST(Plural, IsEmptyOnlyForOne) {
  EXPECT_STREQ(Plural(0), "s");
  EXPECT_STREQ(Plural(1), "");
  EXPECT_STREQ(Plural(2), "s");
}

TEST(SizeText, UsesTheLargestUnitThatGivesOneOrMore) {
  EXPECT_EQ(SizeText(1), "1 byte");
  EXPECT_EQ(SizeText(1023), "1023 bytes");
  EXPECT_EQ(SizeText(1536), "1.5 KiB");
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
  struct {
    char text[4];
    char after = '!';
  } buffer;
  CopyText(buffer.text, "ab");
  EXPECT_STREQ(buffer.text, "ab");
  CopyText(buffer.text, "abcdef");
  EXPECT_STREQ(buffer.text, "abc");
  CopyText(buffer.text, "");
  EXPECT_STREQ(buffer.text, "");
  EXPECT_EQ(buffer.after, '!');
}

}  // namespace
}  // namespace multiverso
