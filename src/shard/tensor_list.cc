#include "shard/tensor_list.h"

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

}  // namespace multiverso
