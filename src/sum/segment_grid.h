// SegmentGrid: how the rows of a table are divided into segments, the units of a round's sum. A
// segment is a row, or a part of a row that is longer than a piece (sum_piece.h).
#pragma once

#include <algorithm>
#include <cstdint>

namespace multiverso {

class SegmentGrid {
 public:
  // Without a limit, every segment is a row.
  static constexpr int64_t kNoLimit = INT64_MAX;

  // Divides each row of `columns` elements into segments of at most `piece_bytes`.
  SegmentGrid(int64_t rows, int64_t columns, int64_t element_bytes, int64_t piece_bytes = kNoLimit)
      : columns_(columns),
        element_bytes_(element_bytes),
        piece_bytes_(piece_bytes),
        width_(std::min(columns, piece_bytes / element_bytes)),
        per_row_((columns + width_ - 1) / width_),
        segments_(rows * per_row_) {}

  int64_t segments() const { return segments_; }
  int64_t per_row() const { return per_row_; }
  int64_t piece_bytes() const { return piece_bytes_; }
  int64_t element_bytes() const { return element_bytes_; }
  // Returns the first element of a segment, or the end of the table for segments().
  int64_t Element(int64_t segment) const {
    return segment / per_row_ * columns_ + segment % per_row_ * width_;
  }
  // Returns the largest number of elements up to `most` that is of whole segments, or `most` if
  // segments are longer.
  int64_t WholeSegments(int64_t most) const {
    return width_ > most ? most : most / width_ * width_;
  }
  int64_t Elements(int64_t first, int64_t end) const { return Element(end) - Element(first); }
  int64_t Bytes(int64_t first, int64_t end) const { return Elements(first, end) * element_bytes_; }
  // Returns one past the last segment whose values, from `first` on, fit in a piece.
  int64_t EndOfPiece(int64_t first) const {
    return std::min(segments_, first + piece_bytes_ / (width_ * element_bytes_));
  }

 private:
  int64_t columns_;
  int64_t element_bytes_;
  int64_t piece_bytes_;
  int64_t width_;  // largest number of elements in a segment
  int64_t per_row_;
  int64_t segments_;
};

}  // namespace multiverso
