// Random changes of inputs for the fuzz targets, without libFuzzer (tests/fuzz/driver.cc).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <string>

namespace multiverso::testing {

// Tries one to four changes. A change sets a byte, flips a bit, truncates, inserts up to 9 equal
// bytes, rotates, erases up to 9 bytes, or sets an aligned number to a boundary value.
inline void Mutate(std::string* bytes, std::mt19937_64* random) {
  // Includes the alignment of checkpoint data (4096) and the last tag of a call (12287).
  static constexpr int64_t kBoundaryValues[] = {
      0,       1,       -1,        2,         7,          8,         255,       256,
      65535,   65536,   INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, 4096,
      1 << 18, 1 << 20, 1LL << 32, 1LL << 40, 1LL << 62,  12287,     16};
  for (uint64_t changes = 1 + (*random)() % 4; changes > 0; --changes) {
    if (bytes->empty()) bytes->push_back('\0');
    const size_t offset = (*random)() % bytes->size();
    const int64_t boundary = kBoundaryValues[(*random)() % std::size(kBoundaryValues)];
    switch ((*random)() % 8) {
      case 0:
        (*bytes)[offset] = static_cast<char>((*random)());
        break;
      case 1:
        (*bytes)[offset] = static_cast<char>((*bytes)[offset] ^ (1 << ((*random)() % 8)));
        break;
      case 2:
        bytes->resize((*random)() % 2 == 0 ? offset : offset % 128);
        break;
      case 3:
        bytes->insert(offset, 1 + (*random)() % 9, static_cast<char>((*random)()));
        break;
      case 4:
        std::rotate(bytes->begin(), bytes->begin() + static_cast<int64_t>(offset), bytes->end());
        break;
      case 5:
        bytes->erase(offset, 1 + (*random)() % 9);
        break;
      default: {
        const size_t width = (*random)() % 2 == 0 ? 4 : 8;
        const size_t field = offset / width * width;
        if (field + width <= bytes->size()) std::memcpy(bytes->data() + field, &boundary, width);
      }
    }
  }
}

}  // namespace multiverso::testing
