#include "shard/row_merge.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "shard/kernels.h"

namespace multiverso {
namespace {

// Returns the positions of the list in ascending order of id. Duplicates keep their order.
std::vector<int64_t> PositionsById(const int64_t* ids, int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [ids](int64_t a, int64_t b) { return ids[a] < ids[b]; });
  return order;
}

}  // namespace

bool IsAscending(const int64_t* ids, int64_t count) {
  for (int64_t i = 1; i < count; ++i) {
    if (ids[i - 1] >= ids[i]) return false;
  }
  return true;
}

int64_t FindDuplicate(const int64_t* ids, int64_t count) {
  if (IsAscending(ids, count)) return -1;
  const std::vector<int64_t> order = PositionsById(ids, count);
  int64_t found = -1;
  for (size_t i = 1; i < order.size(); ++i) {
    const int64_t position = order[i - 1];
    if (ids[position] == ids[order[i]] && (found < 0 || position < found)) found = position;
  }
  return found;
}

int64_t MergeRows(const RowDelta& delta, int64_t columns, DType dtype, int64_t* ids, char* values) {
  if (delta.count == 0) return 0;  // the pointers of an empty delta may be null
  const int64_t row_bytes = columns * SizeOf(dtype);
  const auto* const rows = static_cast<const char*>(delta.values);
  if (IsAscending(delta.ids, delta.count)) {
    std::memcpy(ids, delta.ids, static_cast<size_t>(delta.count) * sizeof(int64_t));
    std::memcpy(values, rows, static_cast<size_t>(delta.count * row_bytes));
    return delta.count;
  }
  int64_t merged = 0;
  for (const int64_t i : PositionsById(delta.ids, delta.count)) {
    if (merged > 0 && ids[merged - 1] == delta.ids[i]) {
      WithType(dtype, [&](auto* null) {
        using T = std::remove_pointer_t<decltype(null)>;
        kernels::Add(reinterpret_cast<T*>(values + (merged - 1) * row_bytes),
                     reinterpret_cast<const T*>(rows + i * row_bytes), columns);
      });
      continue;
    }
    ids[merged] = delta.ids[i];
    std::memcpy(values + merged * row_bytes, rows + i * row_bytes, static_cast<size_t>(row_bytes));
    ++merged;
  }
  return merged;
}

}  // namespace multiverso
