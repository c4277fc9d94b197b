#include "consistency/staging.h"

#include <gtest/gtest.h>

#include <vector>

#include "memory/segment.h"

namespace multiverso {
namespace {

constexpr int kWorkers = 3;

StagedShape ShapeOf(int64_t rows, int64_t columns) {
  return StagedShape{StripeLayout(rows, columns * static_cast<int64_t>(sizeof(float))), columns,
                     DType::kFloat32};
}

using Rows = std::vector<std::vector<float>>;

// Stages rows of a table of 10 rows and 2 columns in buffer 1 of worker 2. Returns (id, first
// value, second value) of each row.
Rows Stage(const std::vector<int64_t>& ids, const std::vector<float>& delta) {
  int64_t bytes = 0;
  EXPECT_TRUE(Staging::BytesFor(ShapeOf(10, 2), kWorkers, &bytes));
  const Segment segment = std::move(Segment::CreatePrivate(bytes).value());
  const Staging staging(segment.data(), ShapeOf(10, 2), kWorkers);
  const auto count = static_cast<int64_t>(ids.size());
  const int64_t staged = staging.StageRows(2, 1, ids.data(), count, delta.data());
  const auto* const values = reinterpret_cast<const float*>(staging.values(2, 1));
  Rows rows;
  for (int64_t i = 0; i < staged; ++i) {
    rows.push_back(
        {static_cast<float>(staging.row_ids(2, 1)[i]), values[2 * i], values[2 * i + 1]});
  }
  return rows;
}

TEST(Staging, SumsDuplicatesInTheGivenOrder) {
  EXPECT_EQ(Stage({4, 4, 4, 1, 4}, {1e8F, 1, 1, 1, -1e8F, 1, 7, 8, 3, 1}),
            (Rows{{1, 7, 8}, {4, ((1e8F + 1) + -1e8F) + 3, 4}}));
}

TEST(Staging, AcceptsMoreRowIdsThanTheTableHasRows) {
  const std::vector<int64_t> ids(50, 9);
  EXPECT_EQ(Stage(ids, std::vector<float>(100, 1)), (Rows{{9, 50, 50}}));
}

TEST(Staging, RejectsSizesBeyondTheAddressSpace) {
  int64_t bytes = 0;
  EXPECT_TRUE(Staging::BytesFor(ShapeOf(int64_t{1} << 30, 1), 4, &bytes));
  EXPECT_GE(bytes, (int64_t{1} << 32) * 4 * Staging::kBuffers);
  EXPECT_FALSE(Staging::BytesFor(ShapeOf(int64_t{1} << 41, 1), 4, &bytes));
  EXPECT_FALSE(Staging::BytesFor(ShapeOf(1, int64_t{1} << 42), 4, &bytes));
  EXPECT_FALSE(Staging::BytesFor(ShapeOf(int64_t{1} << 36, 8), 100, &bytes));
}

}  // namespace
}  // namespace multiverso
