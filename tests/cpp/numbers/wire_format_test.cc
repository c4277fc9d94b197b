#include "numbers/wire_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace multiverso {
namespace {

constexpr WireFormat kFormats[] = {WireFormat::kBFloat16, WireFormat::kInt8};

int64_t Size(const std::vector<float>& values) { return static_cast<int64_t>(values.size()); }

// Numbers of very different magnitudes, and zeros.
std::vector<float> RandomValues(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-20, 20);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(random) * std::ldexp(1.0F, exponent(random));
    values.push_back(random() % 8 == 0 ? 0 : value);
  }
  return values;
}

std::vector<char> Nearest(WireFormat format, const std::vector<float>& values) {
  std::vector<char> bytes(static_cast<size_t>(WireBytes(format, Size(values))));
  EXPECT_TRUE(EncodeNearest(format, values.data(), Size(values), bytes.data()));
  return bytes;
}

std::vector<float> Decoded(WireFormat format, const std::vector<char>& bytes, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  Decode(format, bytes.data(), count, values.data());
  return values;
}

// Returns the most by which neighbours of a value differ in the format.
double StepAt(WireFormat format, const std::vector<float>& values, size_t i) {
  if (format == WireFormat::kBFloat16) return std::fabs(values[i]) / 128;
  float largest = 0;
  for (size_t k = i / 256 * 256; k < std::min(values.size(), i / 256 * 256 + 256); ++k) {
    largest = std::max(largest, std::fabs(values[k]));
  }
  return largest / 127;
}

TEST(WireFormatTest, SizesAreThoseThatTheFormatsPromise) {
  EXPECT_EQ(WireBytes(WireFormat::kFloat32, 1000), 4000);
  EXPECT_EQ(WireBytes(WireFormat::kBFloat16, 1000), 2000);
  EXPECT_EQ(WireBytes(WireFormat::kInt8, 1024), 1024 + 4 * 4);
  EXPECT_EQ(WireBytes(WireFormat::kInt8, 1025), 1025 + 5 * 4);
  EXPECT_EQ(WireBytes(WireFormat::kInt8, 0), 0);
}

TEST(WireFormatTest, NearestValuesAreWithinHalfAStep) {
  for (const int64_t count : {1, 255, 256, 257, 5000}) {
    const std::vector<float> values = RandomValues(count, 1);
    const std::vector<float> halved =
        Decoded(WireFormat::kBFloat16, Nearest(WireFormat::kBFloat16, values), count);
    const std::vector<float> codes =
        Decoded(WireFormat::kInt8, Nearest(WireFormat::kInt8, values), count);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_LE(std::fabs(halved[i] - values[i]), StepAt(WireFormat::kBFloat16, values, i) / 2);
      EXPECT_LE(std::fabs(codes[i] - values[i]), StepAt(WireFormat::kInt8, values, i) * 0.5001);
    }
  }
}

// The sum of what was received and what is held back is what was sent, exactly.
TEST(WireFormatTest, WhatRoundingTookIsExact) {
  for (const WireFormat format : kFormats) {
    for (uint32_t seed = 0; seed < 200; ++seed) {
      const std::vector<float> values = RandomValues(300, seed);
      const std::vector<char> bytes = Nearest(format, values);
      const std::vector<float> received = Decoded(format, bytes, Size(values));
      std::vector<float> held = values;
      std::vector<char> taken(bytes.size());
      ASSERT_TRUE(EncodeTaking(format, held.data(), Size(held), taken.data()));
      EXPECT_EQ(taken, bytes);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(static_cast<double>(received[i]) + static_cast<double>(held[i]),
                  static_cast<double>(values[i]));
      }
      std::vector<float> sum = held;
      AddDecoded(format, bytes.data(), Size(sum), sum.data());
      EXPECT_EQ(sum, values);
    }
  }
}

TEST(WireFormatTest, RandomRoundingIsUnbiasedAndRepeatable) {
  constexpr int64_t kCount = 1000;
  constexpr int kTrials = 4000;
  const std::vector<float> values = RandomValues(kCount, 3);
  for (const WireFormat format : kFormats) {
    std::vector<char> bytes(static_cast<size_t>(WireBytes(format, kCount)));
    std::vector<char> again = bytes;
    std::vector<double> sums(kCount);
    std::vector<float> decoded(kCount);
    for (int trial = 0; trial < kTrials; ++trial) {
      const auto seed = static_cast<uint64_t>(trial);
      ASSERT_TRUE(EncodeAtRandom(format, values.data(), kCount, seed, bytes.data()));
      ASSERT_TRUE(EncodeAtRandom(format, values.data(), kCount, seed, again.data()));
      ASSERT_EQ(bytes, again);
      Decode(format, bytes.data(), kCount, decoded.data());
      for (size_t i = 0; i < values.size(); ++i) sums[i] += decoded[i];
    }
    // The errors of one value have a standard deviation of at most half a step.
    double sum_of_means = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double step = StepAt(format, values, i);
      if (step == 0) continue;
      const double mean = (sums[i] / kTrials - static_cast<double>(values[i])) / step;
      EXPECT_LE(std::fabs(mean), 3 / std::sqrt(kTrials));
      sum_of_means += mean;
    }
    EXPECT_LE(std::fabs(sum_of_means), 3 * std::sqrt(double{kCount} / kTrials));
  }
}

TEST(WireFormatTest, RefusesValuesThatAFormatCannotRepresent) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<char> bytes(4096);
  for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::max()}) {
    std::vector<float> values = RandomValues(600, 4);
    values[500] = value;
    const std::vector<float> before = values;
    for (const WireFormat format : kFormats) {
      EXPECT_FALSE(EncodeNearest(format, values.data(), 600, bytes.data()));
      EXPECT_FALSE(EncodeAtRandom(format, values.data(), 600, 1, bytes.data()));
      EXPECT_FALSE(EncodeTaking(format, values.data(), 600, bytes.data()));
      EXPECT_EQ(std::memcmp(values.data(), before.data(), 600 * sizeof(float)), 0);
    }
  }
  const std::vector<float> tiny(300, 1e-35F);
  EXPECT_FALSE(EncodeNearest(WireFormat::kInt8, tiny.data(), 300, bytes.data()));
  EXPECT_TRUE(EncodeNearest(WireFormat::kBFloat16, tiny.data(), 300, bytes.data()));
}

TEST(WireFormatTest, DecodesPartsThatBeginAndEndAnywhere) {
  for (const WireFormat format : {WireFormat::kFloat32, WireFormat::kBFloat16, WireFormat::kInt8}) {
    const std::vector<char> bytes = Nearest(format, RandomValues(1000, 6));
    const std::vector<float> whole = Decoded(format, bytes, 1000);
    for (const int64_t first : {0, 1, 255, 256, 700}) {
      for (const int64_t count : {0, 1, 256, 300}) {
        std::vector<float> part(static_cast<size_t>(count));
        DecodePart(format, bytes.data(), first, count, part.data());
        EXPECT_EQ(part, std::vector<float>(whole.begin() + first, whole.begin() + first + count));
      }
    }
  }
}

}  // namespace
}  // namespace multiverso
