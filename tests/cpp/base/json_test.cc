#include "base/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace multiverso::testing {
namespace {

TEST(JsonText, KeepsCharactersAndEscapesOthers) {
  EXPECT_EQ(JsonText(""), "\"\"");
  EXPECT_EQ(JsonText("w \"a\" \\ /"), "\"w \\\"a\\\" \\\\ /\"");
  EXPECT_EQ(JsonText(std::string("\0\n\x1b\x7f", 4)), "\"\\u0000\\u000a\\u001b\\u007f\"");
  for (const char* text : {"m\u00fcller", "\u20ac", "\ufffd", "\U0001f600", "\U0010ffff"}) {
    EXPECT_EQ(JsonText(text), "\"" + std::string(text) + "\"");
  }
  EXPECT_EQ(JsonText("\u0085"), "\"\\u0085\"");
}

TEST(JsonText, ReplacesEachByteThatIsNoPartOfACharacter) {
  const std::string replaced = "\ufffd";
  for (const char* byte : {"\x80", "\xc3", "\xc0", "\xff"}) {
    EXPECT_EQ(JsonText(byte), "\"" + replaced + "\"");
  }
  EXPECT_EQ(JsonText("\xe2\x82"), "\"" + replaced + replaced + "\"");  // cut
  EXPECT_EQ(JsonText("\xc0\xaf"), "\"" + replaced + replaced + "\"");  // too long
  EXPECT_EQ(JsonText("\xe0\x80\xaf"), "\"" + replaced + replaced + replaced + "\"");
  EXPECT_EQ(JsonText("\xed\xa0\x80"), "\"" + replaced + replaced + replaced + "\"");  // surrogate
  EXPECT_EQ(JsonText("\xe2(\xc3\xbc"), "\"" + replaced + "(\u00fc\"");
  EXPECT_EQ(JsonText("\xf4\x90\x80\x80").size(), 2 + 4 * replaced.size());  // above U+10FFFF
}

TEST(JsonObject, WritesValuesOfAllTypes) {
  JsonObject object;
  object.Add("a", int64_t{1} << 62)
      .Add("b", true)
      .Add("c", 0.5)
      .Add("d", "x")
      .Add("e", JsonValue());
  object.Add("f", std::numeric_limits<double>::infinity()).Add("g", JsonObject().Take());
  object.Add("h", JsonList(std::vector<int>{1, 2}, [](int i) { return std::to_string(i); }));
  object.Add("i", JsonList(std::vector<int>(), [](int i) { return i; }));
  EXPECT_EQ(object.Take().text,
            "{\"a\":4611686018427387904,\"b\":true,\"c\":0.5,\"d\":\"x\",\"e\":null,\"f\":null,"
            "\"g\":{},\"h\":[\"1\",\"2\"],\"i\":[]}");
}

}  // namespace
}  // namespace multiverso::testing
