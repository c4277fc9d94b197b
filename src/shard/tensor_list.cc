#include "shard/tensor_list.h"

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
