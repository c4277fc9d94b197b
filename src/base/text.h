// Texts for messages: concatenation, plurals, sizes, times, and copies to arrays of fixed size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>

namespace multiverso {

// Concatenates all arguments, as operator<< prints them.
template <class... Parts>
std::string StrCat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Returns the ending of a noun that follows `count` in a message.
inline const char* Plural(int64_t count) { return count == 1 ? "" : "s"; }

// Returns a size such as "400 bytes" or "23.5 GiB".
inline std::string SizeText(int64_t bytes) {
  if (bytes < 1024) return StrCat(bytes, " byte", Plural(bytes));
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would be written as 1024.0.
  for (; size >= 1023.95; ++unit) size /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", size, kUnits[unit]);
  return text;
}

// Returns a time such as "0.731 s", "2.5 s" or "120 s".
inline std::string TimeText(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f s", seconds < 1 ? 3 : seconds < 10 ? 1 : 0, seconds);
  return text;
}

// Returns the text in an array of fixed size, which other processes may be writing to.
template <size_t N>
std::string TextOf(const char (&text)[N]) {
  return std::string(text, strnlen(text, N));
}

// Copies as many bytes of `text` as fit before a final zero byte, which is always written.
template <size_t N>
void CopyText(char (&destination)[N], const std::string& text) {
  const size_t length = text.size() < N - 1 ? text.size() : N - 1;
  std::memcpy(destination, text.data(), length);
  destination[length] = '\0';
}

}  // namespace multiverso
