#include "reader/value_changes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace multiverso {
namespace {

template <typename T>
class ValueChangesTest : public testing::Test {};
using Elements = testing::Types<uint16_t, uint32_t, uint64_t>;
TYPED_TEST_SUITE(ValueChangesTest, Elements);

// Finds the changes, and checks that they turn the first copy into the second one.
template <typename T>
int64_t CheckedChanges(const std::vector<T>& before, const std::vector<T>& now) {
  const auto count = static_cast<int64_t>(now.size());
  std::vector<T> copy = before;
  std::vector<T> values(now.size());
  std::vector<uint16_t> places(now.size());
  std::vector<uint32_t> counts((now.size() + kChangesBlock - 1) / kChangesBlock, 77);
  const auto found = FindChanges(now.data(), copy.data(), sizeof(T), count, counts.data(),
                                 places.data(), values.data());
  EXPECT_TRUE(found.ok());
  EXPECT_EQ(copy, now);
  std::vector<T> applied = before;
  size_t next = 0;
  for (size_t block = 0; block < counts.size(); ++block) {
    for (uint32_t i = 0; i < counts[block]; ++i, ++next) {
      T& element = applied[block * kChangesBlock + places[next]];
      EXPECT_NE(element, values[next]);
      element = values[next];
    }
  }
  EXPECT_EQ(static_cast<int64_t>(next), found.value());
  EXPECT_EQ(applied, now);
  return found.value();
}

TYPED_TEST(ValueChangesTest, FindsRandomChangesOfAnySize) {
  std::mt19937_64 random(1);
  for (const size_t size : {0, 1, 15, 16, 17, 1000, 65535, 65536, 65537, 200000}) {
    std::vector<TypeParam> before(size);
    for (auto& element : before) element = static_cast<TypeParam>(random());
    EXPECT_EQ(CheckedChanges(before, before), 0);
    std::vector<TypeParam> now = before;
    int64_t changed = 0;
    for (auto& element : now) {
      if (random() % 7 != 0) continue;
      ++element;
      ++changed;
    }
    EXPECT_EQ(CheckedChanges(before, now), changed);
    for (size_t i = 0; i < size; ++i) now[i] = static_cast<TypeParam>(~before[i]);
    EXPECT_EQ(CheckedChanges(before, now), static_cast<int64_t>(size));
  }
}

TEST(ValueChanges, ComparesBits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float before[] = {nan, 0.0F, 1.0F};
  const float now[] = {nan, -0.0F, 1.0F};
  float copy[3];
  std::memcpy(copy, before, sizeof(before));
  uint32_t counts[1];
  uint16_t places[3];
  float values[3];
  const auto found = FindChanges(now, copy, 4, 3, counts, places, values);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value(), 1);
  EXPECT_EQ(places[0], 1);
  EXPECT_TRUE(std::signbit(values[0]));
}

TEST(ValueChanges, RejectsOtherElements) {
  EXPECT_EQ(FindChanges(nullptr, nullptr, 3, 0, nullptr, nullptr, nullptr).status().code(),
            Code::kValue);
}

}  // namespace
}  // namespace multiverso
