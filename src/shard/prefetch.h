// Prefetching rows: random rows miss the cache, and loading them some rows ahead hides most of the
// latency.
#pragma once

#include <cstdint>

#include "base/compiler.h"

namespace multiverso {

constexpr int64_t kPrefetchDistance = 8;  // in rows

// Always inlined, since the compiler drops a call of a function without visible effects.
template <bool kForWriting>
inline MV_ALWAYS_INLINE void Prefetch(const char* row, int64_t bytes) {
  constexpr int64_t kCacheLine = 64;
  constexpr int64_t kMostBytes = 512;  // the hardware prefetches the rest of the row
  const int64_t end = bytes < kMostBytes ? bytes : kMostBytes;
  for (int64_t at = 0; at < end; at += kCacheLine) MV_PREFETCH(row + at, kForWriting ? 1 : 0);
}

}  // namespace multiverso
