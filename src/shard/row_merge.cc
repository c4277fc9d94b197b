#include "shard/row_merge.h"

#include <cstring>
#include <type_traits>

#include "base/copy_bytes.h"
#include "numbers/kernels.h"

namespace multiverso {
int64_t MergeRows(const RowDelta& delta, const RowOrder& order, int64_t columns, DType dtype,
                  int64_t* ids, char* values) {
  if (delta.count == 0) return 0;  // the pointers of an empty delta may be null
  const int64_t row_bytes = columns * SizeOf(dtype);
  const auto* const rows = static_cast<const char*>(delta.values);
  if (order.is_of_list()) {
    std::memcpy(ids, delta.ids, static_cast<size_t>(delta.count) * sizeof(int64_t));
    CopyBytes(values, rows, static_cast<size_t>(delta.count * row_bytes));
    return delta.count;
  }
  int64_t merged = 0;
  for (int64_t place = 0; place < delta.count; ++place) {
    const int64_t i = order.PositionAt(place);
    if (merged > 0 && ids[merged - 1] == delta.ids[i]) {
      WithType(dtype, [&](auto* null) {
        using T = std::remove_pointer_t<decltype(null)>;
        kernels::Add(reinterpret_cast<T*>(values + (merged - 1) * row_bytes),
                     reinterpret_cast<const T*>(rows + i * row_bytes), columns);
      });
      continue;
    }
    ids[merged] = delta.ids[i];
    CopyBytes(values + merged * row_bytes, rows + i * row_bytes, static_cast<size_t>(row_bytes));
    ++merged;
  }
  return merged;
}

}  // namespace multiverso
