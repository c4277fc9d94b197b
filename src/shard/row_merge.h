// Merging rows: turns a delta whose row ids are in any order and may repeat into a delta that names
// each row once.
#ifndef MULTIVERSO_SHARD_ROW_MERGE_H_
#define MULTIVERSO_SHARD_ROW_MERGE_H_

#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace multiverso {

// A delta for `count` rows: their ids, and their values in the order of the ids.
struct RowDelta {
  const int64_t* ids = nullptr;
  int64_t count = 0;
  const void* values = nullptr;
};

// A RowDelta that owns its memory.
struct MergedRows {
  std::vector<int64_t> ids;
  std::vector<char> values;

  RowDelta delta() const {
    return RowDelta{ids.data(), static_cast<int64_t>(ids.size()), values.data()};
  }
};

// Returns whether each id is larger than the one before it, so that no id repeats.
bool IsAscending(const int64_t* ids, int64_t count);
// Returns the first position in the list whose row is named at another position too, or -1 if every
// row is named once.
int64_t FindDuplicate(const int64_t* ids, int64_t count);

// Writes the merged delta to `ids` and `values`, in ascending order of id, and returns its number
// of rows. The deltas of a row that is named more than once are summed in the given order. `ids`
// and `values` have room for as many rows as `delta` has and do not overlap it.
int64_t MergeRows(const RowDelta& delta, int64_t columns, DType dtype, int64_t* ids, char* values);

}  // namespace multiverso

#endif  // MULTIVERSO_SHARD_ROW_MERGE_H_
