// Texts for messages: concatenation, plurals, and copies to arrays of fixed size.
#ifndef MULTIVERSO_BASE_TEXT_H_
#define MULTIVERSO_BASE_TEXT_H_

#include <cstddef>
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

// Copies as many bytes of `text` as fit before a final zero byte, which is always written.
template <size_t N>
void CopyText(char (&destination)[N], const std::string& text) {
  const size_t length = text.size() < N - 1 ? text.size() : N - 1;
  std::memcpy(destination, text.data(), length);
  destination[length] = '\0';
}

}  // namespace multiverso

#endif  // MULTIVERSO_BASE_TEXT_H_
