#include "shard/tensor_list.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "shard/kernels.h"

namespace multiverso {

TensorList::TensorList(DType dtype, const int64_t* counts, int64_t tensors)
    : dtype_(dtype), begins_(static_cast<size_t>(tensors) + 1) {
  for (int64_t i = 0; i < tensors; ++i) {
    begins_[static_cast<size_t>(i) + 1] = begins_[static_cast<size_t>(i)] + counts[i];
  }
}

int64_t TensorList::count_of(int64_t tensor) const {
  return begins_[static_cast<size_t>(tensor) + 1] - begins_[static_cast<size_t>(tensor)];
}

template <class Body>
void TensorList::ForEachPart(int64_t first, int64_t count, Body body) const {
  // The last tensor that begins at `first` or before: those without elements come before it.
  const auto after = std::upper_bound(begins_.begin(), begins_.end() - 1, first);
  auto tensor = static_cast<size_t>(after - begins_.begin()) - 1;
  const int64_t end = first + count;
  for (int64_t at = first; at < end; ++tensor) {
    const int64_t part = std::min(end, begins_[tensor + 1]) - at;
    if (part == 0) continue;
    body(static_cast<char*>(data_[tensor]) + (at - begins_[tensor]) * SizeOf(dtype_), at - first,
         part);
    at += part;
  }
}

void TensorList::Subtract(int64_t first, int64_t count, void* values) const {
  WithType(dtype_, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    ForEachPart(first, count, [&](const char* part, int64_t at, int64_t elements) {
      T* const difference = static_cast<T*>(values) + at;
      kernels::Difference(difference, reinterpret_cast<const T*>(part), difference, elements);
    });
  });
}

void TensorList::Write(int64_t first, int64_t count, const void* values) const {
  const int64_t element_bytes = SizeOf(dtype_);
  ForEachPart(first, count, [&](char* part, int64_t at, int64_t elements) {
    std::memcpy(part, static_cast<const char*>(values) + at * element_bytes,
                static_cast<size_t>(elements * element_bytes));
  });
}

}  // namespace multiverso
