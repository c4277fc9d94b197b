// Merging rows: turns a delta whose row ids are in any order and may repeat into a delta that names
// each row once.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "shard/row_order.h"

namespace multiverso {

// A delta for `count` rows: their ids, and their values in the order of the ids.
struct RowDelta {
  const int64_t* ids = nullptr;
  int64_t count = 0;
  const void* values = nullptr;
};

// Memory for a merged delta.
struct MergedRows {
  std::vector<int64_t> ids;
  std::vector<char> values;
};

// Writes the merged delta to `ids` and `values`, in the given order, and returns its number of
// rows. The deltas of a row that is named more than once are summed in the given order. `order` is
// that of the delta's ids. `ids` and `values` have room for as many rows as `delta` has and do not
// overlap it.
int64_t MergeRows(const RowDelta& delta, const RowOrder& order, int64_t columns, DType dtype,
                  int64_t* ids, char* values);

}  // namespace multiverso
