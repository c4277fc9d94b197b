#include "numbers/kernels.h"

#include <gtest/gtest.h>

#include <random>
#include <type_traits>
#include <vector>

namespace multiverso::kernels {
namespace {

template <class T>
std::vector<T> RandomValues(size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(random());
  return values;
}

// Integers wrap around, as in NumPy.
template <class T>
T Plus(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a + b;
  } else {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
}

// Vector registers hold up to 16 elements, and a run may begin at any of them.
template <class T>
void ExpectRunsOfEveryLength() {
  constexpr size_t kLongest = 100;
  constexpr size_t kMargin = 3;  // elements around a run that must not change
  const auto weights = RandomValues<T>(kLongest + 2 * kMargin, 1);
  const auto delta = RandomValues<T>(kLongest + 2 * kMargin, 2);
  for (size_t length = 0; length <= kLongest; ++length) {
    for (size_t first = 0; first <= kMargin; ++first) {
      auto expected = weights;
      auto expected_out = delta;
      for (size_t i = first; i < first + length; ++i) {
        expected_out[i] = expected[i] = Plus(weights[i], delta[i]);
      }
      const auto count = static_cast<int64_t>(length);
      auto added = weights;
      Add(added.data() + first, delta.data() + first, count);
      ASSERT_EQ(added, expected) << length << " from " << first;
      added = weights;
      auto out = delta;  // The results replace the deltas.
      AddGet(added.data() + first, out.data() + first, out.data() + first, count);
      ASSERT_EQ(added, expected) << length << " from " << first;
      ASSERT_EQ(out, expected_out) << length << " from " << first;
    }
  }
}

TEST(Kernels, ChangeExactlyTheElementsOfARun) {
  ExpectRunsOfEveryLength<float>();
  ExpectRunsOfEveryLength<double>();
  ExpectRunsOfEveryLength<int32_t>();
  ExpectRunsOfEveryLength<int64_t>();
}

}  // namespace
}  // namespace multiverso::kernels
