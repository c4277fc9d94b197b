#include "shard/row_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace multiverso {
namespace {

using Ids = std::vector<int64_t>;

RowOrder OrderOf(const Ids& ids, int64_t num_row) {
  return RowOrder(ids.data(), static_cast<int64_t>(ids.size()), num_row);
}

TEST(RowOrder, IsAStableSort) {
  std::mt19937_64 random(1);
  for (const int64_t num_row : {int64_t{3}, int64_t{2049}, int64_t{1} << 33, int64_t{1} << 50}) {
    for (const size_t count : {2U, 255U, 256U, 257U, 5000U}) {
      Ids ids(count);
      for (int64_t& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(num_row));
      ids.back() = 0;  // so that the list is not ascending
      std::vector<int64_t> positions(count);
      std::iota(positions.begin(), positions.end(), int64_t{0});
      const auto id_of = [&](int64_t position) { return ids[static_cast<size_t>(position)]; };
      std::stable_sort(positions.begin(), positions.end(),
                       [&](int64_t a, int64_t b) { return id_of(a) < id_of(b); });
      const RowOrder order = OrderOf(ids, num_row);
      ASSERT_FALSE(order.is_of_list());
      for (size_t i = 0; i < count; ++i) {
        const auto place = static_cast<int64_t>(i);
        ASSERT_EQ(order.PositionAt(place), positions[i]) << count << " of " << num_row << " rows";
        ASSERT_EQ(order.IdAt(ids.data(), place), id_of(positions[i]));
      }
    }
  }
}

TEST(RowOrder, FindsTheFirstPositionOfARepeatedRow) {
  const auto find = [](const Ids& ids) { return OrderOf(ids, 10).FirstRepeated(ids.data()); };
  EXPECT_EQ(find({}), -1);
  EXPECT_EQ(find({7}), -1);
  EXPECT_EQ(find({9, 1, 4}), -1);
  EXPECT_EQ(find({1, 2, 2}), 1);
  EXPECT_EQ(find({9, 3, 1, 3, 1}), 1);
  EXPECT_EQ(find({9, 3, 1, 1, 3, 3}), 1);
}

TEST(RowOrder, NeedsRoomForARowAndAPositionIn64Bits) {
  EXPECT_TRUE(RowOrder::CanOrder(int64_t{1} << 20, int64_t{1} << 44));
  EXPECT_FALSE(RowOrder::CanOrder((int64_t{1} << 20) + 1, int64_t{1} << 44));
  EXPECT_FALSE(RowOrder::CanOrder(int64_t{1} << 32, 1));
}

}  // namespace
}  // namespace multiverso
