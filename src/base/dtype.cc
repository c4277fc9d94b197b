#include "base/dtype.h"

#include <iterator>

namespace multiverso {

const char* NameOf(DType dtype) {
  constexpr const char* kNames[] = {"float32",  "float64", "int32", "int64", "float16",
                                    "bfloat16", "int8",    "int16", "uint8", "bool"};
  static_assert(std::size(kNames) == MV_BOOL + 1);
  const auto number = static_cast<int32_t>(dtype);
  return IsDType(number) ? kNames[number] : "unknown";
}

}  // namespace multiverso
