// StoredRows: the rows that a section stores if it does not store all rows of its range, and the
// numbers by which files list them (docs/checkpoint-format.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shard/row_range.h"

namespace multiverso {

class StoredRows {
 public:
  // Consecutive rows, and how many rows are stored before them.
  struct Run {
    int64_t first;
    int64_t count;
    int64_t place;
  };

  // Appends rows behind those that are there.
  void Append(int64_t first, int64_t count) {
    if (!runs_.empty() && runs_.back().first + runs_.back().count == first) {
      runs_.back().count += count;
    } else {
      runs_.push_back(Run{first, count, rows_});
    }
    rows_ += count;
  }

  int64_t rows() const { return rows_; }
  const std::vector<Run>& runs() const { return runs_; }
  int64_t end() const { return runs_.empty() ? 0 : runs_.back().first + runs_.back().count; }
  // Returns the index of the first run that ends behind a row.
  size_t RunAt(int64_t row) const {
    return static_cast<size_t>(
        std::upper_bound(runs_.begin(), runs_.end(), row,
                         [](int64_t at, const Run& run) { return at < run.first + run.count; }) -
        runs_.begin());
  }
  // Returns the number of stored rows before a row.
  int64_t PlaceOf(int64_t row) const {
    const size_t index = RunAt(row);
    if (index == runs_.size()) return rows_;
    return runs_[index].place + std::max<int64_t>(row - runs_[index].first, 0);
  }
  // Returns the stored row at a place, and the others of its run.
  Run From(int64_t place) const {
    const auto next = std::upper_bound(runs_.begin(), runs_.end(), place,
                                       [](int64_t at, const Run& run) { return at < run.place; });
    const Run& run = *(next - 1);
    const int64_t skipped = place - run.place;
    return Run{run.first + skipped, run.count - skipped, place};
  }

  // The runs of ranges of more rows cannot be encoded.
  static constexpr int64_t kMostRows = int64_t{1} << 46;
  // Returns the runs as numbers: the distance of the first row from `origin` times kMostOfRun, plus
  // the count minus 1. A longer run is several ones.
  std::vector<uint64_t> Encode(int64_t origin) const {
    std::vector<uint64_t> encoded;
    for (const Run& run : runs_) {
      for (int64_t done = 0; done < run.count; done += kMostOfRun) {
        const int64_t count = std::min(run.count - done, kMostOfRun);
        encoded.push_back(
            static_cast<uint64_t>((run.first + done - origin) * kMostOfRun + count - 1));
      }
    }
    return encoded;
  }
  // Appends a run that Encode has made. Returns false if rows are not among those of `range`,
  // behind those that are there.
  bool Decode(uint64_t encoded, RowRange range) {
    const auto distance = static_cast<int64_t>(encoded / kMostOfRun);
    const auto count = static_cast<int64_t>(encoded % kMostOfRun) + 1;
    if (distance > range.count() - count || range.first + distance < end()) return false;
    Append(range.first + distance, count);
    return true;
  }

 private:
  static constexpr int64_t kMostOfRun = 65536;

  std::vector<Run> runs_;
  int64_t rows_ = 0;
};

}  // namespace multiverso
