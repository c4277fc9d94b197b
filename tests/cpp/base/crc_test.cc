#include "base/crc.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace multiverso {
namespace {

// The first three are from RFC 3720, appendix B.4, and that of 123456789 is the usual check value.
TEST(Crc, HasTheKnownValues) {
  const std::string zeros(32, '\0');
  const std::string ones(32, '\xff');
  std::string ascending;
  for (char i = 0; i < 32; ++i) ascending += i;
  for (auto* crc : {&Crc32c, &PortableCrc32c}) {
    EXPECT_EQ(crc(zeros.data(), 32, 0), 0x8a9136aaU);
    EXPECT_EQ(crc(ones.data(), 32, 0), 0x62a8ab43U);
    EXPECT_EQ(crc(ascending.data(), 32, 0), 0x46dd794eU);
    EXPECT_EQ(crc("123456789", 9, 0), 0xe3069283U);
    EXPECT_EQ(crc("", 0, 0), 0U);
  }
}

TEST(Crc, InstructionAndTableAgreeForAllLengthsAndPlaces) {
  std::mt19937 random(1);
  std::vector<unsigned char> bytes(200);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  for (int64_t first = 0; first < 9; ++first) {
    for (int64_t count = 0; count < 150; ++count) {
      ASSERT_EQ(Crc32c(bytes.data() + first, count), PortableCrc32c(bytes.data() + first, count));
    }
  }
}

TEST(Crc, ContinuesFromAnEarlierChecksum) {
  const std::string text = "a checksum of two parts is that of the whole";
  const auto size = static_cast<int64_t>(text.size());
  for (int64_t part = 0; part <= size; ++part) {
    const uint32_t first = Crc32c(text.data(), part);
    EXPECT_EQ(Crc32c(text.data() + part, size - part, first), Crc32c(text.data(), size));
  }
}

}  // namespace
}  // namespace multiverso
