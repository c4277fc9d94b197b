#include "base/text.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

TEST(StrCat, ConcatenatesItsArguments) {
  EXPECT_EQ(StrCat("rank ", 3, " of ", int64_t{1} << 40, ", ", 0.5),
            "rank 3 of 1099511627776, 0.5");
}

TEST(Plural, IsEmptyOnlyForOne) {
  EXPECT_STREQ(Plural(0), "s");
  EXPECT_STREQ(Plural(1), "");
  EXPECT_STREQ(Plural(2), "s");
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
