#include "consistency/staging.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "memory/segment.h"

namespace multiverso {
namespace {

constexpr int kWorkers = 3;

StagedShape ShapeOf(int64_t rows, int64_t columns) {
  return StagedShape{StripeLayout(rows, columns * static_cast<int64_t>(sizeof(float))), columns,
                     DType::kFloat32};
}

class StagingTest : public ::testing::Test {
 protected:
  StagingTest() : shape_(ShapeOf(10, 2)) {
    int64_t bytes = 0;
    EXPECT_TRUE(Staging::BytesFor(shape_, kWorkers, &bytes));
    segment_ = std::move(Segment::CreatePrivate(bytes).value());
    staging_ = std::make_unique<Staging>(segment_.data(), shape_, kWorkers);
  }

  // Stages rows in buffer 1 of worker 2; returns (id, first value, second value) of each row.
  std::vector<std::vector<float>> Stage(const std::vector<int64_t>& ids,
                                        const std::vector<float>& delta) {
    const auto count = static_cast<int64_t>(ids.size());
    const int64_t staged = staging_->StageRows(2, 1, ids.data(), count, delta.data());
    const auto* const values = reinterpret_cast<const float*>(staging_->values(2, 1));
    std::vector<std::vector<float>> rows;
    for (int64_t i = 0; i < staged; ++i) {
      rows.push_back(
          {static_cast<float>(staging_->row_ids(2, 1)[i]), values[2 * i], values[2 * i + 1]});
    }
    return rows;
  }

  StagedShape shape_;
  Segment segment_;
  std::unique_ptr<Staging> staging_;
};

using Expected = std::vector<std::vector<float>>;

TEST_F(StagingTest, KeepsRowsInAscendingOrder) {
  EXPECT_EQ(Stage({0, 3, 9}, {1, 2, 3, 4, 5, 6}), (Expected{{0, 1, 2}, {3, 3, 4}, {9, 5, 6}}));
  EXPECT_EQ(Stage({9, 0, 3}, {1, 2, 3, 4, 5, 6}), (Expected{{0, 3, 4}, {3, 5, 6}, {9, 1, 2}}));
}

TEST_F(StagingTest, SumsDuplicatesInTheGivenOrder) {
  EXPECT_EQ(Stage({4, 4, 4, 1, 4}, {1e8F, 1, 1, 1, -1e8F, 1, 7, 8, 3, 1}),
            (Expected{{1, 7, 8}, {4, ((1e8F + 1) + -1e8F) + 3, 4}}));
}

TEST_F(StagingTest, AcceptsAnEmptyAddFromNull) {
  EXPECT_EQ(staging_->StageRows(0, 0, nullptr, 0, nullptr), 0);
}

TEST_F(StagingTest, AcceptsMoreRowIdsThanTheTableHasRows) {
  const std::vector<int64_t> ids(50, 9);
  EXPECT_EQ(Stage(ids, std::vector<float>(100, 1)), (Expected{{9, 50, 50}}));
}

TEST_F(StagingTest, HasRoomForEachWorkerAndBuffer) {
  std::set<const char*> addresses;
  char* const end = segment_.data() + segment_.bytes();
  for (int worker = 0; worker < kWorkers; ++worker) {
    for (int buffer = 0; buffer < Staging::kBuffers; ++buffer) {
      std::memset(staging_->row_ids(worker, buffer), worker + 1, 10 * sizeof(int64_t));
      char* const values = staging_->values(worker, buffer);
      ASSERT_LE(values + shape_.layout.bytes(), end);
      std::memset(values, worker + 1, static_cast<size_t>(shape_.layout.bytes()));
      addresses.insert(values);
    }
  }
  EXPECT_EQ(addresses.size(), static_cast<size_t>(kWorkers * Staging::kBuffers));
  for (int worker = 0; worker < kWorkers; ++worker) {
    for (int buffer = 0; buffer < Staging::kBuffers; ++buffer) {
      const char* const ids = reinterpret_cast<const char*>(staging_->row_ids(worker, buffer));
      EXPECT_EQ(ids[10 * sizeof(int64_t) - 1], worker + 1);
      EXPECT_EQ(staging_->values(worker, buffer)[0], worker + 1);
      EXPECT_EQ(staging_->values(worker, buffer)[shape_.layout.bytes() - 1], worker + 1);
    }
  }
}

TEST_F(StagingTest, DescribesOneRoundPerBuffer) {
  std::set<const StagedAdd*> addresses;
  for (int worker = 0; worker < kWorkers; ++worker) {
    for (uint64_t round = 7; round < 7 + Staging::kBuffers; ++round) {
      addresses.insert(staging_->add_of(worker, round));
    }
  }
  EXPECT_EQ(addresses.size(), static_cast<size_t>(kWorkers * Staging::kBuffers));
  EXPECT_EQ(staging_->add_of(1, 3), staging_->add_of(1, 3 + Staging::kBuffers));
}

TEST(StagingBytes, RejectSizesBeyondTheAddressSpace) {
  int64_t bytes = 0;
  EXPECT_TRUE(Staging::BytesFor(ShapeOf(int64_t{1} << 30, 1), 4, &bytes));
  EXPECT_GE(bytes, (int64_t{1} << 32) * 4 * Staging::kBuffers);
  EXPECT_FALSE(Staging::BytesFor(ShapeOf(int64_t{1} << 41, 1), 4, &bytes));
  EXPECT_FALSE(Staging::BytesFor(ShapeOf(1, int64_t{1} << 42), 4, &bytes));
  EXPECT_FALSE(Staging::BytesFor(ShapeOf(int64_t{1} << 36, 8), 100, &bytes));
}

}  // namespace
}  // namespace multiverso
