#include "base/raw_bytes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace multiverso {
namespace {

TEST(RawBytesTest, ValuesAreReadInTheOrderInWhichTheyWereAppended) {
  std::string bytes;
  AppendRaw(int32_t{-7}, &bytes);
  AppendRaw(uint64_t{1} << 40, &bytes);
  ASSERT_EQ(bytes.size(), 12U);
  size_t at = 0;
  int32_t first = 0;
  uint64_t second = 0;
  EXPECT_TRUE(ReadRaw(bytes, &at, &first));
  EXPECT_TRUE(ReadRaw(bytes, &at, &second));
  EXPECT_EQ(first, -7);
  EXPECT_EQ(second, uint64_t{1} << 40);
  EXPECT_EQ(at, bytes.size());
}

TEST(RawBytesTest, TruncatedValueIsNotRead) {
  const std::string bytes(11, '\x01');
  size_t at = 8;
  uint32_t value = 5;
  EXPECT_FALSE(ReadRaw(bytes, &at, &value));
  EXPECT_EQ(at, 8U);
  EXPECT_EQ(value, 5U);
  at = bytes.size();
  EXPECT_FALSE(ReadRaw(bytes, &at, &value));
}

}  // namespace
}  // namespace multiverso
