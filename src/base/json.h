// Writes JSON (RFC 8259): values, lists and objects on one line. Texts come back as they were given
// if they are UTF-8; of others, each byte that is no part of a character becomes U+FFFD.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

namespace multiverso {

// A text as a JSON string, in quotation marks. Control characters are escaped, so that the result
// is also safe to print in a message.
std::string JsonText(const std::string& text);
// A number, or null if it is not finite.
std::string JsonNumber(double number);

// A value that has been written: null by default.
struct JsonValue {
  std::string text = "null";
};

inline JsonValue ToJson(JsonValue value) { return value; }
inline JsonValue ToJson(const std::string& text) { return JsonValue{JsonText(text)}; }
inline JsonValue ToJson(const char* text) { return JsonValue{JsonText(text)}; }
template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
JsonValue ToJson(Number number) {
  if constexpr (std::is_same_v<Number, bool>) {
    return JsonValue{number ? "true" : "false"};
  } else if constexpr (std::is_floating_point_v<Number>) {
    return JsonValue{JsonNumber(number)};
  } else {
    return JsonValue{std::to_string(number)};
  }
}

// Returns the list of format(element) for each element of `range`.
template <class Range, class Format>
JsonValue JsonList(const Range& range, const Format& format) {
  std::string text = "[";
  for (const auto& element : range) {
    text += (text.size() > 1 ? "," : "") + ToJson(format(element)).text;
  }
  return JsonValue{text + "]"};
}

class JsonObject {
 public:
  // Adds a member. Each key is given once.
  template <class Value>
  JsonObject& Add(const char* key, const Value& value) {
    text_ += (text_.size() > 1 ? "," : "") + JsonText(key) + ":" + ToJson(value).text;
    return *this;
  }
  // Returns the object, which gets no more members.
  JsonValue Take() { return JsonValue{std::move(text_) + "}"}; }

 private:
  std::string text_ = "{";
};

}  // namespace multiverso
