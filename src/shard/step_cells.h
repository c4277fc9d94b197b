// StepCells: how many updates the parameters have had, for updaters whose formula needs the count.
//
// Each row counts its own updates, so that a rarely updated row behaves as if it were alone. All
// rows of an array are updated together, so each of its stripes shares a count. A cell is the unit
// that has one count: a row or a stripe, or a piece of kMostBytes of a longer row. A call updates a
// cell under the lock of its stripe or exclusively. If a call covers only part of a cell, the cell
// counts the update when all of its elements have been updated.
#ifndef MULTIVERSO_SHARD_STEP_CELLS_H_
#define MULTIVERSO_SHARD_STEP_CELLS_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "shard/stripe_layout.h"

namespace multiverso {

// A new cell is zero.
struct StepCell {
  uint32_t steps;
  uint32_t part;  // elements that have had the next update already
};

class StepCells {
 public:
  static constexpr int64_t kMostBytes = int64_t{1} << 18;

  // Creates no cells.
  StepCells() = default;
  // Plans the cells of a shard whose rows are updated `row_by_row` or always together.
  StepCells(const StripeLayout& layout, int64_t columns, bool row_by_row)
      : elements_(layout.rows() * columns),
        row_(row_by_row ? columns : layout.rows_per_stripe() * columns),
        piece_(std::min(row_, std::max<int64_t>(1, kMostBytes / (layout.row_bytes() / columns)))),
        pieces_(DivideUp(row_, piece_)) {}

  int64_t count() const { return row_ == 0 ? 0 : DivideUp(elements_, row_) * pieces_; }
  // Uses count() zero-filled cells.
  void Attach(StepCell* cells) { cells_ = cells; }

  // Counts an update of `count` elements from element `first` on. Calls body(first, count, step)
  // for maximal runs of elements for which this is update number `step`.
  template <class Body>
  void Count(int64_t first, int64_t count, Body body) const;

  // For checkpoints. Most returns the largest number of updates among these elements; `count` is
  // positive. Set sets the count of every cell that holds any of the elements to `steps`.
  uint32_t Most(int64_t first, int64_t count) const;
  void Set(int64_t first, int64_t count, uint32_t steps) const;

 private:
  // Returns the index of the cell that holds the element.
  int64_t PlaceOf(int64_t element) const {
    return element / row_ * pieces_ + element % row_ / piece_;
  }
  static int64_t CountIn(StepCell* cell, int64_t elements, int64_t cell_elements);

  int64_t elements_ = 0;
  int64_t row_ = 0;     // elements
  int64_t piece_ = 0;   // elements of a cell
  int64_t pieces_ = 0;  // cells of a row
  StepCell* cells_ = nullptr;
};

inline int64_t StepCells::CountIn(StepCell* cell, int64_t elements, int64_t cell_elements) {
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

inline uint32_t StepCells::Most(int64_t first, int64_t count) const {
  uint32_t most = 0;
  const int64_t last = PlaceOf(first + count - 1);
  for (int64_t i = PlaceOf(first); i <= last; ++i) most = std::max(most, cells_[i].steps);
  return most;
}

inline void StepCells::Set(int64_t first, int64_t count, uint32_t steps) const {
  const int64_t last = PlaceOf(first + count - 1);
  for (int64_t i = PlaceOf(first); i <= last; ++i) cells_[i] = StepCell{steps, 0};
}

template <class Body>
void StepCells::Count(int64_t first, int64_t count, Body body) const {
  if (count == 0) return;
  const int64_t end = first + count;
  int64_t row_begin = first / row_ * row_;
  int64_t piece = (first - row_begin) / piece_;
  StepCell* cell = cells_ + first / row_ * pieces_ + piece;
  int64_t run_begin = first;
  int64_t run_step = 0;
  for (int64_t at = first; at < end; ++cell) {
    const int64_t begin = row_begin + piece * piece_;
    const int64_t cell_end = std::min({begin + piece_, row_begin + row_, elements_});
    const int64_t elements = std::min(end, cell_end) - at;
    const int64_t step = CountIn(cell, elements, cell_end - begin);
    if (step != run_step) {
      if (at > run_begin) body(run_begin, at - run_begin, run_step);
      run_begin = at;
      run_step = step;
    }
    at += elements;
    if (++piece == pieces_) {
      piece = 0;
      row_begin += row_;
    }
  }
  body(run_begin, end - run_begin, run_step);
}

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_STEP_CELLS_H_
