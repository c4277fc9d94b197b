// TensorList: the parameters of a model in the model's own memory, in the order of the table's
// elements: consecutive tensors, each of consecutive elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace multiverso {

// Maps ranges of the table's elements to addresses. The caller owns the memory.
class TensorList {
 public:
  // `counts` are numbers of elements, each >= 0, whose sum does not overflow.
  TensorList(DType dtype, const int64_t* counts, int64_t tensors) : dtype_(dtype), begins_{0} {
    for (int64_t i = 0; i < tensors; ++i) begins_.push_back(begins_.back() + counts[i]);
  }

  DType dtype() const { return dtype_; }
  int64_t tensors() const { return static_cast<int64_t>(begins_.size()) - 1; }
  int64_t count() const { return begins_.back(); }
  int64_t count_of(int64_t tensor) const {
    return begins_[static_cast<size_t>(tensor) + 1] - begins_[static_cast<size_t>(tensor)];
  }

  // `data` has an address for each tensor, which may be null if the tensor is empty. The list
  // copies them, since a sync in the background outlives the caller's array.
  void SetAddresses(void* const* data) { data_.assign(data, data + tensors()); }

  // Calls body(address, offset in the range, elements) for each tensor that has a part of the
  // range.
  template <class Body>
  void ForEachPart(int64_t first, int64_t count, Body body) const;

 private:
  DType dtype_;
  std::vector<int64_t> begins_;  // first element of each tensor, then the end of the last
  std::vector<void*> data_;
};

template <class Body>
void TensorList::ForEachPart(int64_t first, int64_t count, Body body) const {
  // Finds the last tensor that begins at or before `first`, which follows any empty ones there.
  const auto after = std::upper_bound(begins_.begin(), begins_.end() - 1, first);
  auto tensor = static_cast<size_t>(after - begins_.begin()) - 1;
  const int64_t end = first + count;
  for (int64_t element = first; element < end; ++tensor) {
    const int64_t part = std::min(end, begins_[tensor + 1]) - element;
    if (part == 0) continue;
    body(static_cast<char*>(data_[tensor]) + (element - begins_[tensor]) * SizeOf(dtype_),
         element - first, part);
    element += part;
  }
}

}  // namespace multiverso
