#include "reader/value_changes.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace multiverso {
namespace {

// A piece without a difference costs one comparison of so many bytes, which compilers turn into
// few instructions. The smaller it is, the fewer elements beside a changed one are looked at.
constexpr int64_t kPieceBytes = 32;

// Elements are compared as unsigned numbers, so that a NaN equals itself and 0 differs from -0.
template <typename T>
int64_t Find(const T* now, T* before, int64_t count, uint32_t* counts, uint16_t* places,
             T* values) {
  constexpr int64_t kPiece = kPieceBytes / static_cast<int64_t>(sizeof(T));
  int64_t found = 0;
  for (int64_t first = 0; first < count; first += kChangesBlock) {
    const int64_t end = std::min(first + kChangesBlock, count);
    const int64_t found_before = found;
    for (int64_t i = first; i < end; i += kPiece) {
      const int64_t piece_end = std::min(i + kPiece, end);
      const auto bytes = static_cast<size_t>(piece_end - i) * sizeof(T);
      if (piece_end == i + kPiece ? std::memcmp(now + i, before + i, kPieceBytes) == 0
                                  : std::memcmp(now + i, before + i, bytes) == 0) {
        continue;
      }
      for (int64_t j = i; j < piece_end; ++j) {
        if (now[j] == before[j]) continue;
        places[found] = static_cast<uint16_t>(j - first);
        values[found] = now[j];
        ++found;
      }
      std::memcpy(before + i, now + i, bytes);
    }
    counts[first / kChangesBlock] = static_cast<uint32_t>(found - found_before);
  }
  return found;
}

}  // namespace

Result<int64_t> FindChanges(const void* now, void* before, int64_t element_bytes, int64_t count,
                            uint32_t* counts, uint16_t* places, void* values) {
  const auto find = [&](auto kind) {
    using T = decltype(kind);
    return Find(static_cast<const T*>(now), static_cast<T*>(before), count, counts, places,
                static_cast<T*>(values));
  };
  switch (element_bytes) {
    case 2:
      return find(uint16_t{});
    case 4:
      return find(uint32_t{});
    case 8:
      return find(uint64_t{});
    default:
      return Status(Code::kValue,
                    StrCat("expected elements of 2, 4 or 8 bytes, received ", element_bytes));
  }
}

}  // namespace multiverso
