#include "shard/tensor_list.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "support/memory_shard.h"

namespace multiverso {
namespace {

using testing::DTypeOf;

template <class T>
class TensorLists : public ::testing::Test {};
using Types = ::testing::Types<float, double, int32_t, int64_t>;
TYPED_TEST_SUITE(TensorLists, Types);

// Tensors of 3, 0, 1, 0 and 4 elements, which hold 0 to 7.
template <class T>
struct Five {
  std::vector<T> a{0, 1, 2}, b{3}, c{4, 5, 6, 7};
  std::vector<void*> data{a.data(), nullptr, b.data(), nullptr, c.data()};
  TensorList list = [] {
    const int64_t counts[] = {3, 0, 1, 0, 4};
    return TensorList(DTypeOf<T>(), counts, 5);
  }();

  Five() { list.Place(data.data()); }
};

TYPED_TEST(TensorLists, KnowWhatTheyHave) {
  const Five<TypeParam> five;
  EXPECT_EQ(five.list.tensors(), 5);
  EXPECT_EQ(five.list.count(), 8);
  EXPECT_EQ(five.list.count_of(1), 0);
  EXPECT_EQ(five.list.count_of(4), 4);
}

TYPED_TEST(TensorLists, SubtractFromAnyRangeAndNothingElse) {
  const Five<TypeParam> five;
  for (int64_t first = 0; first <= 8; ++first) {
    for (int64_t count = 0; first + count <= 8; ++count) {
      std::vector<TypeParam> values(10, 100);
      five.list.Subtract(first, count, values.data() + 1);
      for (int64_t i = 0; i < 10; ++i) {
        const bool inside = i >= 1 && i <= count;
        const auto expected = static_cast<TypeParam>(inside ? first + i - 1 - 100 : 100);
        ASSERT_EQ(values[static_cast<size_t>(i)], expected) << first << " " << count << " " << i;
      }
    }
  }
}

TYPED_TEST(TensorLists, WriteAnyRangeAndNothingElse) {
  for (int64_t first = 0; first <= 8; ++first) {
    for (int64_t count = 0; first + count <= 8; ++count) {
      const Five<TypeParam> five;
      std::vector<TypeParam> values(8);
      std::iota(values.begin(), values.end(), static_cast<TypeParam>(50));
      five.list.Write(first, count, values.data());
      std::vector<TypeParam> all(five.a);
      all.insert(all.end(), five.b.begin(), five.b.end());
      all.insert(all.end(), five.c.begin(), five.c.end());
      for (int64_t i = 0; i < 8; ++i) {
        const bool inside = i >= first && i < first + count;
        ASSERT_EQ(all[static_cast<size_t>(i)], static_cast<TypeParam>(inside ? 50 + i - first : i));
      }
    }
  }
}

TEST(TensorListOfIntegers, WrapsAroundLikeEveryOtherSum) {
  int64_t value = std::numeric_limits<int64_t>::min();
  void* const data[] = {&value};
  const int64_t counts[] = {1};
  TensorList list(DType::kInt64, counts, 1);
  list.Place(data);
  int64_t one = 1;
  list.Subtract(0, 1, &one);
  EXPECT_EQ(one, std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace multiverso
