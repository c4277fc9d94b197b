// Values in their memory representation, for messages between the ranks of one job, which run on
// machines of one kind. Files use `checkpoint/bytes.h`.
#ifndef MULTIVERSO_BASE_RAW_BYTES_H_
#define MULTIVERSO_BASE_RAW_BYTES_H_

#include <cstring>
#include <string>
#include <type_traits>

namespace multiverso {

template <class T>
void AppendRaw(const T& value, std::string* bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Reads the value at *position (<= size) and advances *position. Returns false if it is truncated.
template <class T>
bool ReadRaw(const std::string& bytes, size_t* position, T* value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (bytes.size() - *position < sizeof(T)) return false;
  std::memcpy(value, bytes.data() + *position, sizeof(T));
  *position += sizeof(T);
  return true;
}

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_RAW_BYTES_H_
