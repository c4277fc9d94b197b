// DeltaSource: where one term of the sum of a round has its values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "sum/segment_grid.h"

namespace multiverso {

// A segment in a list, and the number of workers' deltas in the sum of its values.
struct ListedSegment {
  uint64_t number : 44;
  uint64_t terms : 20;

  int64_t segment() const { return static_cast<int64_t>(number); }
};

// The delta of one worker in a round, or the sum of those of several workers. It has values for
// consecutive segments, or for the segments or rows of a list. Its user visits these in ascending
// order, with Next and Step.
class DeltaSource {
 public:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  // Values from segment `first` on, of `terms` workers from `worker` on.
  static DeltaSource Whole(int worker, const char* values, int64_t first = 0, int64_t terms = 1);
  // Values of the listed rows, in ascending order, of one worker.
  static DeltaSource Rows(int worker, const char* values, const int64_t* row_ids, int64_t count);
  // Values of the listed segments, in ascending order, of workers from `worker` on.
  static DeltaSource Segments(int worker, const char* values, const ListedSegment* listed,
                              int64_t count);

  int worker() const { return worker_; }
  bool is_whole() const { return count_ < 0; }
  // Returns the next listed segment, or kNone at the end.
  int64_t Next(const SegmentGrid& grid) const;
  // Skips to the first listed row at or after that row, for a source of rows.
  void SeekRow(const SegmentGrid& grid, int64_t row);
  // Reads whole values from `to` if they are at `from`.
  void ReadFrom(const char* to, const char* from) {
    if (is_whole() && values_ == from) values_ = to;
  }
  // Steps past the listed segment Next().
  void Step(const SegmentGrid& grid);
  // Returns the values of the next listed segment, or of that segment for a source of all.
  const char* ValuesOf(const SegmentGrid& grid, int64_t segment) const {
    return is_whole() ? values_ + grid.Bytes(first_, segment) : values_;
  }
  int64_t terms() const {
    return listed_ == nullptr ? terms_ : static_cast<int64_t>(listed_[index_].terms);
  }

 private:
  int worker_ = 0;
  const char* values_ = nullptr;  // of segment first_, or of the next listed segment
  int64_t first_ = 0;
  int64_t terms_ = 1;
  const int64_t* row_ids_ = nullptr;
  const ListedSegment* listed_ = nullptr;
  int64_t count_ = -1;  // number of listed rows or segments, or -1
  int64_t index_ = 0;   // of the next one
  int64_t part_ = 0;    // the next part of the listed row
};

inline bool AllAreWhole(const std::vector<DeltaSource>& sources) {
  return std::all_of(sources.begin(), sources.end(),
                     [](const DeltaSource& source) { return source.is_whole(); });
}

}  // namespace multiverso
