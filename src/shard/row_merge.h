// RowMerge: turns a delta for rows in any order, some of them named more than once, into one that
// names each row once.
#ifndef MULTIVERSO_SHARD_ROW_MERGE_H_
#define MULTIVERSO_SHARD_ROW_MERGE_H_

#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace multiverso {

// A delta for rows of `columns` elements.
struct RowDelta {
  const int64_t* ids = nullptr;
  int64_t count = 0;
  const void* values = nullptr;
};

// Owns the memory of a delta.
struct MergedRows {
  std::vector<int64_t> ids;
  std::vector<char> values;

  RowDelta delta() const {
    return RowDelta{ids.data(), static_cast<int64_t>(ids.size()), values.data()};
  }
};

bool IsAscending(const int64_t* ids, int64_t count);
// Returns the first position in the list whose row is named at another position too, or -1 if every
// row is named once.
int64_t FindDuplicate(const int64_t* ids, int64_t count);

// Writes the rows in ascending order of id. A row that is named more than once becomes the sum of
// its deltas in the given order. `ids` and `values` have room for as many rows as `delta` has and
// do not overlap the delta. Returns the number of distinct rows.
int64_t MergeRows(const RowDelta& delta, int64_t columns, DType dtype, int64_t* ids, char* values);

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_ROW_MERGE_H_
