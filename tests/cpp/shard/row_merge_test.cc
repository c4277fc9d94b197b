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
      MergeRows(RowDelta{ids.data(), count, values.data()}, RowOrder(ids.data(), count, 6), columns,
                DType::kFloat32, merged.ids.data(), reinterpret_cast<char*>(merged.values.data()));
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
  EXPECT_EQ(MergeRows(RowDelta{}, RowOrder(), 3, DType::kInt64, nullptr, nullptr), 0);
}

}  // namespace
}  // namespace multiverso
