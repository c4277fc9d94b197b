// Values in their memory representation, also for messages between the ranks of one job, which run
// on machines of one kind. Files use `checkpoint/bytes.h`.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>

#include "base/compiler.h"

namespace multiverso {

// Returns the value that has the bytes of `from`, as std::bit_cast in C++20. Always inlined, since
// vectorized loops call it.
template <class To, class From>
inline MV_ALWAYS_INLINE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to{};
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

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
