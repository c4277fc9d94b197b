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
  } place;
  CopyText(place.text, "ab");
  EXPECT_STREQ(place.text, "ab");
  CopyText(place.text, "abcdef");
  EXPECT_STREQ(place.text, "abc");
  CopyText(place.text, "");
  EXPECT_STREQ(place.text, "");
  EXPECT_EQ(place.after, '!');
}

}  // namespace
}  // namespace multiverso
