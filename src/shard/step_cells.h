// StepCells: how many updates the parameters have had, for updaters whose formula needs the count.
//
// Each row of a matrix counts its own updates, so that a rarely updated row behaves as if it were
// alone. All elements of an array are updated together, so the elements of a stripe share a count.
// A unit is a row of a matrix or a stripe of an array. It has one cell, or one for each
// kMaxCellBytes of a longer row. A call that covers only part of a cell adds its number of elements
// to the cell's `part`; when that reaches the size of the cell, the cell counts an update. A call
// updates a cell under the lock of its stripe, or excludes other access in another way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/checked.h"
#include "shard/stripe_layout.h"

namespace multiverso {

// A new cell is zero.
struct StepCell {
  uint32_t steps;
  uint32_t part;  // elements, not yet in `steps`, of calls that covered only part of the cell
};

class StepCells {
 public:
  static constexpr int64_t kMaxCellBytes = int64_t{1} << 18;

  // Creates no cells.
  StepCells() = default;
  // Plans the cells of a shard, whose units are rows if `row_by_row`, and stripes otherwise.
  StepCells(const StripeLayout& layout, int64_t columns, bool row_by_row)
      : elements_(layout.rows() * columns),
        is_row_by_row_(row_by_row),
        unit_elements_(row_by_row ? columns : layout.rows_per_stripe() * columns),
        cell_elements_(std::min(
            unit_elements_, std::max<int64_t>(1, kMaxCellBytes / (layout.row_bytes() / columns)))),
        cells_per_unit_(DivideUp(unit_elements_, cell_elements_)) {}

  int64_t count() const {
    return unit_elements_ == 0 ? 0 : DivideUp(elements_, unit_elements_) * cells_per_unit_;
  }
  bool HasCellPerRow() const { return is_row_by_row_ && cells_per_unit_ == 1; }
  // Returns the cell of a row, if each row has one.
  const StepCell* CellOfRow(int64_t row) const { return cells_ + row; }
  // Uses count() zero-filled cells.
  void Attach(StepCell* cells) { cells_ = cells; }

  // Counts an update of `count` elements from element `first` on. Calls body(first, count, step)
  // for each run of elements for which this is update number `step`.
  template <class Body>
  void Count(int64_t first, int64_t count, Body body) const;

  // Counts an update of a row, if each row has one cell, and returns its number.
  int64_t CountRow(int64_t row) const {
    return CountInCell(cells_ + row, cell_elements_, cell_elements_);
  }

  // Returns the cells that hold any of these elements (`count` > 0).
  struct Range {
    StepCell* first;
    int64_t count;
  };
  Range RangeOf(int64_t first, int64_t count) const {
    const int64_t cell = CellOf(first);
    return Range{cells_ + cell, CellOf(first + count - 1) - cell + 1};
  }

  // For checkpoints: return the largest step count among these elements (`count` > 0); set the
  // count of every cell that holds any of these elements.
  uint32_t MaxSteps(int64_t first, int64_t count) const;
  void SetSteps(int64_t first, int64_t count, uint32_t steps) const;

 private:
  int64_t CellOf(int64_t element) const {
    return element / unit_elements_ * cells_per_unit_ + element % unit_elements_ / cell_elements_;
  }
  static int64_t CountInCell(StepCell* cell, int64_t elements, int64_t cell_elements);

  int64_t elements_ = 0;
  bool is_row_by_row_ = false;
  int64_t unit_elements_ = 0;
  int64_t cell_elements_ = 0;
  int64_t cells_per_unit_ = 0;
  StepCell* cells_ = nullptr;
};

inline int64_t StepCells::CountInCell(StepCell* cell, int64_t elements, int64_t cell_elements) {
  const int64_t step = int64_t{cell->steps} + 1;
  int64_t part = cell->part;
  if (elements < cell_elements) part += elements;
  if (elements == cell_elements || part >= cell_elements) {
    if (elements < cell_elements) part -= cell_elements;
    if (cell->steps < std::numeric_limits<uint32_t>::max()) ++cell->steps;
  }
  cell->part = static_cast<uint32_t>(part);
  return step;
}

inline uint32_t StepCells::MaxSteps(int64_t first, int64_t count) const {
  uint32_t steps = 0;
  const int64_t last = CellOf(first + count - 1);
  for (int64_t i = CellOf(first); i <= last; ++i) steps = std::max(steps, cells_[i].steps);
  return steps;
}

inline void StepCells::SetSteps(int64_t first, int64_t count, uint32_t steps) const {
  const int64_t last = CellOf(first + count - 1);
  for (int64_t i = CellOf(first); i <= last; ++i) cells_[i] = StepCell{steps, 0};
}

template <class Body>
void StepCells::Count(int64_t first, int64_t count, Body body) const {
  if (count == 0) return;
  const int64_t end = first + count;
  int64_t unit_begin = first / unit_elements_ * unit_elements_;
  int64_t cell_in_unit = (first - unit_begin) / cell_elements_;
  StepCell* cell = cells_ + first / unit_elements_ * cells_per_unit_ + cell_in_unit;
  int64_t run_begin = first;
  int64_t run_step = 0;
  for (int64_t at = first; at < end; ++cell) {
    const int64_t cell_begin = unit_begin + cell_in_unit * cell_elements_;
    const int64_t cell_end =
        std::min({cell_begin + cell_elements_, unit_begin + unit_elements_, elements_});
    const int64_t elements = std::min(end, cell_end) - at;
    const int64_t step = CountInCell(cell, elements, cell_end - cell_begin);
    if (step != run_step) {
      if (at > run_begin) body(run_begin, at - run_begin, run_step);
      run_begin = at;
      run_step = step;
    }
    at += elements;
    if (++cell_in_unit == cells_per_unit_) {
      cell_in_unit = 0;
      unit_begin += unit_elements_;
    }
  }
  body(run_begin, end - run_begin, run_step);
}

}  // namespace multiverso
