#include "base/json.h"

#include <cmath>
#include <cstdio>
#include <locale>
#include <sstream>

namespace multiverso {
namespace {

// Returns the number of bytes of the UTF-8 character at `at`, or 0 if there is none: a byte that
// cannot begin one, a character that is cut, written with too many bytes, or a surrogate.
size_t BytesOfCharacter(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const uint32_t first = byte(at);
  if (first < 0x80) return 1;
  const size_t bytes = first < 0xc2   ? 0
                       : first < 0xe0 ? 2
                       : first < 0xf0 ? 3
                       : first < 0xf5 ? 4
                                      : 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  const uint32_t second = byte(at + 1);
  const bool is_valid = !(first == 0xe0 && second < 0xa0) && !(first == 0xed && second >= 0xa0) &&
                        !(first == 0xf0 && second < 0x90) && !(first == 0xf4 && second >= 0x90);
  return is_valid ? bytes : 0;
}

}  // namespace

std::string JsonText(const std::string& text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = BytesOfCharacter(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    // U+007F to U+009F are control characters, too. The latter begin with C2 in UTF-8.
    const auto second = bytes == 2 ? static_cast<unsigned char>(text[at + 1]) : 0U;
    if (bytes == 0) {
      out += "\xef\xbf\xbd";
    } else if (byte < 0x20 || byte == 0x7f || (byte == 0xc2 && second < 0xa0)) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", byte == 0xc2 ? second : byte);
      out += escaped;
    } else {
      if (byte == '"' || byte == '\\') out += '\\';
      out.append(text, at, bytes);
    }
    at += bytes == 0 ? 1 : bytes;
  }
  return out + "\"";
}

std::string JsonNumber(double number) {
  if (!std::isfinite(number)) return "null";
  std::ostringstream out;
  out.imbue(std::locale::classic());  // JSON has a decimal point wherever the user lives
  out.precision(9);
  out << number;
  return out.str();
}

}  // namespace multiverso
