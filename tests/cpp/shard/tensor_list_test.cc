#include "shard/tensor_list.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/memory_shard.h"

namespace multiverso::testing {
namespace {

template <class T>
class TensorLists : public ::testing::Test {};
using Types = ::testing::Types<float, double, int32_t, int64_t>;
TYPED_TEST_SUITE(TensorLists, Types);

// Five tensors, of 3, 0, 1, 0 and 4 elements, which contain the numbers 0 to 7.
template <class T>
struct FiveTensors {
  std::vector<T> a{0, 1, 2}, b{3}, c{4, 5, 6, 7};
  std::vector<void*> data{a.data(), nullptr, b.data(), nullptr, c.data()};
  TensorList list = [] {
    const int64_t counts[] = {3, 0, 1, 0, 4};
    return TensorList(DTypeOf<T>(), counts, 5);
  }();

  FiveTensors() { list.SetAddresses(data.data()); }
};

TYPED_TEST(TensorLists, CountTensorsAndElements) {
  const FiveTensors<TypeParam> five;
  EXPECT_EQ(five.list.tensors(), 5);
  EXPECT_EQ(five.list.count(), 8);
  EXPECT_EQ(five.list.count_of(1), 0);
  EXPECT_EQ(five.list.count_of(4), 4);
}

TYPED_TEST(TensorLists, SplitAnyRangeIntoNonEmptyPartsInOrder) {
  const FiveTensors<TypeParam> five;
  for (int64_t first = 0; first <= 8; ++first) {
    for (int64_t count = 0; first + count <= 8; ++count) {
      int64_t next = 0;
      five.list.ForEachPart(first, count, [&](void* part, int64_t at, int64_t elements) {
        ASSERT_EQ(at, next);
        ASSERT_GT(elements, 0);
        for (int64_t i = 0; i < elements; ++i) {
          ASSERT_EQ(static_cast<TypeParam*>(part)[i], static_cast<TypeParam>(first + at + i));
        }
        next += elements;
      });
      ASSERT_EQ(next, count) << "from " << first;
    }
  }
}

}  // namespace
}  // namespace multiverso::testing
