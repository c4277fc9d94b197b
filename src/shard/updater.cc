#include "shard/updater.h"

namespace multiverso {

Update Update::Part(int64_t first, int64_t elements, int64_t element_bytes) const {
  const int64_t offset = first * element_bytes;
  Update part = *this;
  if (weights != nullptr) part.weights = static_cast<char*>(weights) + offset;
  part.state = static_cast<char*>(state) + offset;
  part.delta = static_cast<const char*>(delta) + offset;
  if (out != nullptr) part.out = static_cast<char*>(out) + offset;
  part.count = elements;
  return part;
}

}  // namespace multiverso
