#include "shard/row_merge.h"

#include <gtest/gtest.h>

#include <vector>

namespace multiverso {
namespace {

using Ids = std::vector<int64_t>;

struct MergeResult {
  Ids ids;
  std::vector<float> values;
};

MergeResult Merge(const Ids& ids, const std::vector<float>& values, int64_t columns) {
  MergeResult merged{Ids(ids.size(), -1), std::vector<float>(values.size(), -1)};
  const auto count = static_cast<int64_t>(ids.size());
  const int64_t rows =
      MergeRows(RowDelta{ids.data(), count, values.data()}, columns, DType::kFloat32,
                merged.ids.data(), reinterpret_cast<char*>(merged.values.data()));
  merged.ids.resize(static_cast<size_t>(rows));
  merged.values.resize(static_cast<size_t>(rows * columns));
  return merged;
}

TEST(RowMerge, SortsRowsAndSumsDuplicatesInTheGivenOrder) {
  const MergeResult merged = Merge({5, 2, 5, 0, 5}, {1e8F, 1, 7, 8, 3, 2, 9, 9, -1e8F, 3}, 2);
  EXPECT_EQ(merged.ids, (Ids{0, 2, 5}));
  EXPECT_EQ(merged.values, (std::vector<float>{9, 9, 7, 8, (1e8F + 3) + -1e8F, 6}));
}

TEST(RowMerge, KeepsAscendingRows) {
  const MergeResult merged = Merge({1, 4}, {1, 2}, 1);
  EXPECT_EQ(merged.ids, (Ids{1, 4}));
  EXPECT_EQ(merged.values, (std::vector<float>{1, 2}));
  EXPECT_EQ(MergeRows(RowDelta{}, 3, DType::kInt64, nullptr, nullptr), 0);
}

TEST(FindDuplicate, ReturnsTheFirstPositionOfADuplicateRow) {
  const auto find = [](const Ids& ids) {
    return FindDuplicate(ids.data(), static_cast<int64_t>(ids.size()));
  };
  EXPECT_EQ(find({}), -1);
  EXPECT_EQ(find({7}), -1);
  EXPECT_EQ(find({9, 1, 4}), -1);
  EXPECT_EQ(find({1, 2, 2}), 1);
  EXPECT_EQ(find({9, 3, 1, 3, 1}), 1);
  EXPECT_EQ(find({9, 3, 1, 1, 3, 3}), 1);
}

TEST(IsAscending, RejectsDuplicateRows) {
  const int64_t ids[] = {0, 3, 3, 9, 1};
  EXPECT_TRUE(IsAscending(ids, 0));
  EXPECT_TRUE(IsAscending(ids, 2));
  EXPECT_FALSE(IsAscending(ids, 3));
  EXPECT_FALSE(IsAscending(ids + 3, 2));
}

}  // namespace
}  // namespace multiverso
