#include "numbers/half.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/raw_bytes.h"

namespace multiverso::testing {
namespace {

// Blocks are converted by instructions where the processor has them, and single elements by loops.
TEST(Half, BlocksAreConvertedAsSingleElementsAre) {
  std::mt19937 random(7);
  std::vector<float> values(1 << 16);
  std::vector<uint16_t> halves(values.size()), rounded[2] = {halves, halves};
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  half::ToFloat(DType::kFloat16, halves.data(), 1 << 16, values.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    float one = 0;
    half::ToFloat(DType::kFloat16, &halves[i], 1, &one);
    const auto bits = BitCast<uint32_t>(values[i]);
    ASSERT_EQ(bits, BitCast<uint32_t>(one));
    values[i] = BitCast<float>(bits + static_cast<uint32_t>(random()) % 0x2000);
  }
  half::RoundToNearest(DType::kFloat16, values.data(), 1 << 16, rounded[0].data());
  half::RoundStochastically(DType::kFloat16, values.data(), 1 << 16, 5, 3, rounded[1].data());
  for (int64_t i = 0; i < 1 << 16; ++i) {
    uint16_t one[2];
    half::RoundToNearest(DType::kFloat16, &values[static_cast<size_t>(i)], 1, &one[0]);
    half::RoundStochastically(DType::kFloat16, &values[static_cast<size_t>(i)], 1, 5 + i, 3,
                              &one[1]);
    for (const int kind : {0, 1}) ASSERT_EQ(rounded[kind][static_cast<size_t>(i)], one[kind]);
  }
}

}  // namespace
}  // namespace multiverso::testing
