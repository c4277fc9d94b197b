#include "sum/round_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <utility>

namespace multiverso::testing {
namespace {

using Deltas = std::vector<DeltaSource>;

DeltaSource Whole(int worker, const std::vector<float>& values) {
  return DeltaSource::Whole(worker, reinterpret_cast<const char*>(values.data()));
}

// Keeps the ids until the program ends, because a source only points to its ids.
DeltaSource Rows(int worker, std::initializer_list<int64_t> ids, const std::vector<float>& values) {
  static std::deque<std::vector<int64_t>> kept_ids;
  kept_ids.emplace_back(ids);
  return DeltaSource::Rows(worker, reinterpret_cast<const char*>(values.data()),
                           kept_ids.back().data(), static_cast<int64_t>(ids.size()));
}

// Returns the sum for a table of that size. Elements without a delta are 0. A segment has at most
// `limit` bytes.
std::vector<float> SumOf(Deltas deltas, int64_t rows, int64_t columns = 1,
                         int64_t limit = SegmentGrid::kNoLimit) {
  RoundSum sum(SegmentGrid(rows, columns, sizeof(float), limit), Reduction::Sum(DType::kFloat32),
               8);
  std::vector<float> total(static_cast<size_t>(rows * columns), 0);
  const auto use = [&](int64_t element, int64_t count, const char* values, int64_t) {
    std::memcpy(total.data() + element, values, static_cast<size_t>(count) * sizeof(float));
  };
  const int64_t end = sum.grid().segments();
  EXPECT_EQ(sum.Sum(&deltas, 0, end, [](int64_t, int64_t) { return true; }, use), end);
  return total;
}

TEST(RoundSum, AddsWholeTables) {
  constexpr int64_t kSize = 40001;
  const std::vector<float> large(kSize, 1e8F);
  const std::vector<float> small(kSize, 3.0F);
  const std::vector<float> minus(kSize, -1e8F);
  EXPECT_EQ(SumOf({Whole(0, large), Whole(1, small), Whole(2, minus)}, kSize),
            std::vector<float>(kSize, (1e8F + 3.0F) + -1e8F));
  // Worker 0 has no delta, so the others, which share a subtree, are added first.
  EXPECT_EQ(SumOf({Whole(1, large), Whole(2, minus), Whole(3, small)}, kSize),
            std::vector<float>(kSize, 1e8F + (-1e8F + 3.0F)));
}

TEST(RoundSum, SumsOnlyTheNamedRows) {
  constexpr int64_t kColumns = 3000;  // more than are summed at a time
  const std::vector<float> ones(2 * kColumns, 1);
  const std::vector<float> tens(3 * kColumns, 10);
  for (const int64_t limit : {SegmentGrid::kNoLimit, int64_t{4096}}) {
    const std::vector<float> total = SumOf(
        {Rows(0, {3, 19}, ones), Rows(1, {}, {}), Rows(2, {3, 8, 9}, tens)}, 20, kColumns, limit);
    std::vector<float> expected(20 * kColumns, 0);
    for (const auto& [row, value] : {std::pair(3, 11.0F), {8, 10.0F}, {9, 10.0F}, {19, 1.0F}}) {
      std::fill_n(expected.begin() + row * kColumns, kColumns, value);
    }
    EXPECT_EQ(total, expected);
  }
}

TEST(RoundSum, MixesRowsAndWholeTables) {
  const std::vector<float> row = {1e8F, 1e8F};
  const std::vector<float> whole = {1, 1, 1, 1, 1, 1};
  const std::vector<float> minus = {-1e8F, -1e8F};
  const float middle = (1e8F + 1) + -1e8F;
  EXPECT_EQ(SumOf({Rows(0, {1}, row), Whole(1, whole), Rows(2, {1}, minus)}, 3, 2),
            (std::vector<float>{1, 1, middle, middle, 1, 1}));
}

TEST(RoundSum, BeginsWithTheFirstTermInsteadOfZero) {
  const std::vector<float> minus_zero(2, -0.0F);
  for (const auto& terms : {Deltas{Whole(0, minus_zero), Whole(1, minus_zero)},
                            Deltas{Rows(0, {0, 1}, minus_zero), Whole(1, minus_zero)},
                            Deltas{Whole(0, minus_zero), Rows(1, {1}, minus_zero)},
                            Deltas{Rows(0, {0, 1}, minus_zero)}}) {
    // Adding 0 to -0 would have produced +0, which has no sign bit.
    for (const float value : SumOf(terms, 2)) EXPECT_TRUE(std::signbit(value));
  }
}

}  // namespace
}  // namespace multiverso::testing
