#include "consistency/round_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "support/memory_shard.h"

namespace multiverso::testing {
namespace {

Contribution Whole(const std::vector<float>& values) {
  Contribution contribution;
  contribution.values = reinterpret_cast<const char*>(values.data());
  return contribution;
}

// Keeps the ids until the program ends, because a contribution only points to its ids.
Contribution Rows(std::initializer_list<int64_t> ids, const std::vector<float>& values) {
  static std::deque<std::vector<int64_t>> kept_ids;
  kept_ids.emplace_back(ids);
  Contribution contribution = Whole(values);
  contribution.is_rows = true;
  contribution.row_ids = kept_ids.back().data();
  contribution.count = static_cast<int64_t>(ids.size());
  return contribution;
}

// A table to which a RoundSum applies contributions, stripe by stripe.
class SummedTable {
 public:
  SummedTable(int64_t rows, int64_t columns, UpdaterKind kind = UpdaterKind::kAdd)
      : memory_(rows, columns, kind),
        shard_(memory_.For(0)),
        sum_(StagedShape{memory_.layout(), columns, DType::kFloat32}, &shard_),
        count_(static_cast<size_t>(rows * columns)) {
    memory_.hyper()->values[kLearningRate].store(0.1);
  }

  void Apply(const std::vector<Contribution>& contributions, float* out = nullptr) {
    for (int64_t stripe = 0; stripe < memory_.layout().stripes(); ++stripe) {
      sum_.ApplyStripe(stripe, contributions, reinterpret_cast<char*>(out));
    }
  }
  void Store(const std::vector<float>& values) {
    EXPECT_TRUE(Call(&shard_, Request::Store(values.data())).ok());
  }
  std::vector<float> values() const { return {memory_.values(), memory_.values() + count_}; }
  int64_t stripes() const { return memory_.layout().stripes(); }

 private:
  MemoryShard<float> memory_;
  Shard shard_;
  RoundSum sum_;
  size_t count_;
};

TEST(RoundSum, AddsWholeTablesInTheGivenOrder) {
  constexpr int64_t kSize = 40001;
  SummedTable table(kSize, 1);
  ASSERT_GT(table.stripes(), 2);
  const std::vector<float> large(kSize, 1e8F);
  const std::vector<float> small(kSize, 3.0F);
  const std::vector<float> minus(kSize, -1e8F);
  table.Apply({Whole(large), Whole(small), Whole(minus)});
  EXPECT_EQ(table.values(), std::vector<float>(kSize, (1e8F + 3.0F) + -1e8F));
  SummedTable other(kSize, 1);
  other.Apply({Whole(large), Whole(minus), Whole(small)});
  EXPECT_EQ(other.values(), std::vector<float>(kSize, 3.0F));
}

TEST(RoundSum, CallsTheUpdaterOnce) {
  SummedTable table(3, 1, UpdaterKind::kSgd);
  const std::vector<float> a = {1.1F, 2.2F, 3.3F};
  const std::vector<float> b = {0.7F, 1e-3F, 5e5F};
  table.Apply({Whole(a), Whole(b)});
  for (size_t i = 0; i < 3; ++i) {
    const float sum = a[i] + b[i];
    const float step = 0.1F * sum;
    EXPECT_EQ(table.values()[i], 0.0F - step);
  }
}

TEST(RoundSum, KeepsASingleContribution) {
  SummedTable table(5, 1);
  const std::vector<float> only = {1, 2, 3, 4, 5};
  table.Apply({Whole(only)});
  table.Apply({Whole(only)});
  EXPECT_EQ(table.values(), (std::vector<float>{2, 4, 6, 8, 10}));
}

TEST(RoundSum, WritesTheResult) {
  constexpr int64_t kSize = 40001;
  SummedTable table(kSize, 1);
  std::vector<float> mine(kSize, 2);
  const std::vector<float> theirs(kSize, 5);
  std::vector<float> out(kSize);
  table.Apply({Whole(mine), Whole(theirs)}, out.data());
  EXPECT_EQ(out, std::vector<float>(kSize, 7));
  // The result may overwrite a worker's delta.
  table.Apply({Whole(mine), Whole(theirs)}, mine.data());
  EXPECT_EQ(mine, std::vector<float>(kSize, 14));
  table.Apply({Whole(mine)}, mine.data());
  EXPECT_EQ(mine, std::vector<float>(kSize, 28));
  EXPECT_EQ(table.values(), mine);
}

TEST(RoundSum, ChangesOnlyTheNamedRows) {
  // A stripe has 8 rows of 2048 float32, so the table has several stripes.
  constexpr int64_t kColumns = 2048;
  SummedTable table(20, kColumns);
  ASSERT_EQ(table.stripes(), 3);
  const std::vector<float> ones(2 * kColumns, 1);
  const std::vector<float> tens(3 * kColumns, 10);
  table.Apply({Rows({3, 19}, ones), Rows({}, {}), Rows({3, 8, 9}, tens)});
  std::vector<float> expected(20 * kColumns, 0);
  const auto fill = [&](int64_t row, float value) {
    std::fill_n(expected.begin() + row * kColumns, kColumns, value);
  };
  fill(3, 11);
  fill(8, 10);
  fill(9, 10);
  fill(19, 1);
  EXPECT_EQ(table.values(), expected);
}

TEST(RoundSum, MixesRowsAndWholeTablesInOrder) {
  SummedTable table(3, 2);
  const std::vector<float> row = {1e8F, 1e8F};
  const std::vector<float> whole = {1, 1, 1, 1, 1, 1};
  const std::vector<float> minus = {-1e8F, -1e8F};
  table.Apply({Rows({1}, row), Whole(whole), Rows({1}, minus)});
  const float middle = (1e8F + 1) + -1e8F;
  EXPECT_EQ(table.values(), (std::vector<float>{1, 1, middle, middle, 1, 1}));
}

TEST(RoundSum, BeginsWithTheFirstTermInsteadOfZero) {
  const std::vector<float> minus_zero(2, -0.0F);
  for (const auto& terms : {std::vector<Contribution>{Whole(minus_zero), Whole(minus_zero)},
                            std::vector<Contribution>{Rows({0, 1}, minus_zero), Whole(minus_zero)},
                            std::vector<Contribution>{Whole(minus_zero), Rows({1}, minus_zero)},
                            std::vector<Contribution>{Rows({0, 1}, minus_zero)}}) {
    SummedTable table(2, 1);
    table.Store(minus_zero);
    table.Apply(terms);
    // Adding 0 to -0 would have produced +0, which has no sign bit.
    for (const float value : table.values()) EXPECT_TRUE(std::signbit(value));
  }
}

}  // namespace
}  // namespace multiverso::testing
