#include "base/raw_bytes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace multiverso {
namespace {

TEST(RawBytes, ValuesAreReadInTheOrderInWhichTheyWereAppended) {
  std::string bytes;
  AppendRaw(int32_t{-7}, &bytes);
  AppendRaw(uint64_t{1} << 40, &bytes);
  ASSERT_EQ(bytes.size(), 12U);
  size_t offset = 0;
  int32_t first = 0;
  uint64_t second = 0;
  EXPECT_TRUE(ReadRaw(bytes, &offset, &first));
  EXPECT_TRUE(ReadRaw(bytes, &offset, &second));
  EXPECT_EQ(first, -7);
  EXPECT_EQ(second, uint64_t{1} << 40);
  EXPECT_EQ(offset, bytes.size());
}

TEST(RawBytes, TruncatedValueIsNotRead) {
  const std::string bytes(11, '\x01');
  size_t offset = 8;
  uint32_t value = 5;
  EXPECT_FALSE(ReadRaw(bytes, &offset, &value));
  EXPECT_EQ(offset, 8U);
  EXPECT_EQ(value, 5U);
  offset = bytes.size();
  EXPECT_FALSE(ReadRaw(bytes, &offset, &value));
}

}  // namespace
}  // namespace multiverso
