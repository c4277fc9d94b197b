#include "table/last_get.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

namespace multiverso::testing {
namespace {

constexpr int64_t kRows = 1 << 20;

// A table of one column whose rows 1000 to 1999 are on this node.
class LastGetTest : public ::testing::Test {
 protected:
  LastGetTest() : values_(kRows), out_(kRows), expected_(kRows) {
    spec_.num_row = kRows;
    std::iota(values_.begin(), values_.end(), 1.0F);
    get_ = std::make_unique<LastGet>(
        spec_, RowRange{1000, 2000},
        [this](int64_t since, std::vector<RowRange>* rows, const WaitLimit&) -> Result<int64_t> {
          *rows = since == 0 ? std::vector<RowRange>{{0, kRows}} : changed_;
          return since + 1;
        },
        [this](const std::vector<RowRange>& rows, void* out, const WaitLimit&) {
          for (const RowRange& range : rows) {
            fetched_ += range.count();
            std::copy(values_.begin() + range.first, values_.begin() + range.end,
                      static_cast<float*>(out) + range.first);
          }
          return failure_;
        });
  }

  Status Get() {
    fetched_ = 0;
    std::fill(out_.begin(), out_.end(), 0.0F);
    return get_->Run(out_.data(), WaitLimit{Instant::max(), Instant::max()});
  }
  void Change(int64_t row) {
    values_[static_cast<size_t>(row)] += 1;
    changed_ = {RowRange{row - row % 100, row - row % 100 + 100}};
  }

  TableSpec spec_;
  std::vector<float> values_;
  std::vector<float> out_;
  std::vector<float> expected_;
  std::vector<RowRange> changed_;
  Status failure_;
  int64_t fetched_ = 0;
  std::unique_ptr<LastGet> get_;
};

TEST_F(LastGetTest, FetchesOnlyWhatHasChanged) {
  ASSERT_TRUE(Get().ok());
  EXPECT_EQ(fetched_, kRows);
  for (const int64_t row : {0L, 999L, 1500L, 2000L, 700000L}) {
    Change(row);
    ASSERT_TRUE(Get().ok());
    EXPECT_EQ(out_, values_) << row;
    EXPECT_EQ(fetched_, row == 1500 ? 1000 : 1100);  // with the rows of this node
  }
}

TEST_F(LastGetTest, FetchesAgainAfterAFailure) {
  ASSERT_TRUE(Get().ok());
  Change(5000);
  failure_ = Status(Code::kPeerLost, "lost");
  EXPECT_EQ(Get().code(), Code::kPeerLost);
  failure_ = Status::Ok();
  ASSERT_TRUE(Get().ok());
  EXPECT_EQ(out_, values_);
}

TEST_F(LastGetTest, StopsListingWhenMostHasChanged) {
  ASSERT_TRUE(Get().ok());
  for (int i = 0; i < 100; ++i) {
    for (float& value : values_) value += 1;
    changed_ = {RowRange{0, kRows}};
    ASSERT_TRUE(Get().ok());
    ASSERT_EQ(fetched_, kRows);
    ASSERT_EQ(out_, values_);
  }
  changed_.clear();
  int64_t all = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Get().ok());
    ASSERT_EQ(out_, values_);
    all += fetched_;
  }
  EXPECT_LT(all, 80 * kRows);
}

}  // namespace
}  // namespace multiverso::testing
