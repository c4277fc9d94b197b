#include "shard/step_cells.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace multiverso {
namespace {

// The cells of a float32 shard, and an update count per element that they are compared with.
class CellsWithModel {
 public:
  CellsWithModel(int64_t rows, int64_t columns, bool row_by_row)
      : layout_(rows, columns * 4),
        cells_(layout_, columns, row_by_row),
        memory_(static_cast<size_t>(cells_.count())),
        steps_(static_cast<size_t>(rows * columns)) {
    cells_.Attach(memory_.data());
  }

  int64_t num_cells() const { return cells_.count(); }
  const StepCells& cells() const { return cells_; }

  // Counts an update and returns the number of runs. The runs must be as long as possible, cover
  // the update in order and have the right steps.
  int Update(int64_t first, int64_t count) {
    int runs = 0;
    int64_t next = first;
    int64_t last_step = 0;
    cells_.Count(first, count, [&](int64_t at, int64_t elements, int64_t step) {
      EXPECT_EQ(at, next);
      EXPECT_GT(elements, 0);
      EXPECT_NE(step, last_step);
      for (int64_t i = at; i < at + elements; ++i) {
        EXPECT_EQ(++steps_[static_cast<size_t>(i)], step) << "element " << i;
      }
      next = at + elements;
      last_step = step;
      ++runs;
    });
    EXPECT_EQ(next, first + count);
    return runs;
  }

 private:
  StripeLayout layout_;
  StepCells cells_;
  std::vector<StepCell> memory_;
  std::vector<int64_t> steps_;
};

TEST(StepCells, LongRowHasOneCellPerPiece) {
  constexpr int64_t kPiece = StepCells::kMaxCellBytes / 4;
  constexpr int64_t kColumns = 2 * kPiece + 5;
  CellsWithModel matrix(3, kColumns, /*row_by_row=*/true);
  EXPECT_EQ(matrix.num_cells(), 9);
  EXPECT_EQ(matrix.Update(kColumns + kPiece, kPiece), 1);
  EXPECT_EQ(matrix.Update(0, 3 * kColumns), 3);
  EXPECT_EQ(matrix.Update(2 * kColumns, 2 * kPiece), 1);
  EXPECT_EQ(matrix.Update(0, 3 * kColumns), 5);
}

TEST(StepCells, PartialUpdatesOfACellCountOnce) {
  CellsWithModel array(40'000, 1, /*row_by_row=*/false);
  std::mt19937 random(2);
  for (int update = 0; update < 20; ++update) {
    for (int64_t at = 0; at < 40'000;) {
      const int64_t count = std::min<int64_t>(40'000 - at, 1 + random() % 7'000);
      array.Update(at, count);
      at += count;
    }
  }
}

TEST(StepCells, IncompleteUpdateDoesNotAffectLaterUpdates) {
  StepCell cell{};
  StepCells cells(StripeLayout(100, 4), 1, /*row_by_row=*/false);
  cells.Attach(&cell);
  int64_t seen = 0;
  const auto body = [&](int64_t /*at*/, int64_t /*count*/, int64_t step) { seen = step; };
  cells.Count(0, 60, body);
  for (int64_t step = 1; step < 5; ++step) {
    cells.Count(0, 100, body);
    EXPECT_EQ(seen, step);
  }
}

TEST(StepCells, CountSaturates) {
  StepCell cell{0xffffffffU, 0};
  StepCells cells(StripeLayout(1, 4), 1, /*row_by_row=*/true);
  cells.Attach(&cell);
  for (int i = 0; i < 2; ++i) {
    cells.Count(0, 1, [](int64_t, int64_t, int64_t step) { EXPECT_EQ(step, int64_t{1} << 32); });
  }
}

TEST(StepCells, CanBeReadAndSetForCheckpoints) {
  // A row of this many elements has two pieces.
  const int64_t columns = StepCells::kMaxCellBytes / 4 + 1;
  CellsWithModel matrix(3, columns, /*row_by_row=*/true);
  matrix.Update(columns, columns);
  matrix.Update(columns, columns);
  EXPECT_EQ(matrix.cells().MaxSteps(0, columns), 0U);
  EXPECT_EQ(matrix.cells().MaxSteps(columns, columns), 2U);
  EXPECT_EQ(matrix.cells().MaxSteps(0, 3 * columns), 2U);
  matrix.cells().SetSteps(2 * columns, columns, 7);
  EXPECT_EQ(matrix.cells().MaxSteps(columns, columns), 2U);
  EXPECT_EQ(matrix.cells().MaxSteps(2 * columns, 1), 7U);
  EXPECT_EQ(matrix.cells().MaxSteps(3 * columns - 1, 1), 7U);
}

}  // namespace
}  // namespace multiverso
