// Numbers and texts in the bytes of checkpoint files. Numbers are little-endian.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

namespace multiverso {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "numbers are written in the byte order of this machine");

// A ByteWriter appends values to a string.
class ByteWriter {
 public:
  template <class T>
  ByteWriter& Put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  // Appends a text, cut or padded with zeros to `bytes` bytes.
  ByteWriter& PutText(const std::string& text, int64_t bytes) {
    out_ += text.substr(0, static_cast<size_t>(bytes));
    out_.resize(out_.size() + static_cast<size_t>(bytes) -
                std::min(text.size(), static_cast<size_t>(bytes)));
    return *this;
  }
  void Reserve(int64_t bytes) { out_.reserve(static_cast<size_t>(bytes)); }
  // Appends zeros up to a size of `bytes`.
  void PadTo(int64_t bytes) { out_.resize(static_cast<size_t>(bytes)); }
  const std::string& bytes() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads consecutive values of a string, which outlives the reader and has enough bytes.
class ByteReader {
 public:
  explicit ByteReader(const std::string& bytes, int64_t position = 0)
      : bytes_(bytes), position_(static_cast<size_t>(position)) {}

  template <class T>
  T Get() {
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(value));
    position_ += sizeof(value);
    return value;
  }
  std::string GetBytes(int64_t count) {
    const std::string part = bytes_.substr(position_, static_cast<size_t>(count));
    position_ += static_cast<size_t>(count);
    return part;
  }
  int64_t position() const { return static_cast<int64_t>(position_); }

 private:
  const std::string& bytes_;
  size_t position_;
};

}  // namespace multiverso
