// RowRange: consecutive rows.
#pragma once

#include <cstdint>
#include <vector>

namespace multiverso {

// Rows first to end - 1.
struct RowRange {
  int64_t first = 0;
  int64_t end = 0;

  int64_t count() const { return end - first; }
  bool Contains(int64_t row) const { return row >= first && row < end; }
};

// Appends rows to ranges that come before them, as a part of the last one if they continue it.
inline void AppendRows(std::vector<RowRange>* ranges, RowRange rows) {
  if (rows.count() <= 0) return;
  if (!ranges->empty() && ranges->back().end == rows.first) {
    ranges->back().end = rows.end;
  } else {
    ranges->push_back(rows);
  }
}

}  // namespace multiverso
