// Compiler features beyond standard C++, with what takes their place where a feature is missing.
#pragma once

#include <cstdint>

#if defined(__GNUC__)
#define MV_ALWAYS_INLINE __attribute__((always_inline))
// Keeps rare work out of its caller, whose entry the inlined work would slow down.
#define MV_NOINLINE __attribute__((noinline))
// `write` is 1 if the cache line will be written to, else 0.
#define MV_PREFETCH(address, write) __builtin_prefetch(address, write)
#else
#define MV_ALWAYS_INLINE
#define MV_NOINLINE
#define MV_PREFETCH(address, write) static_cast<void>(address)
#endif

namespace multiverso {

// Returns the number of the lowest bit that is set, counted from 0. One must be set.
inline int LowestBit(uint64_t bits) {
#if defined(__GNUC__)
  return __builtin_ctzll(bits);
#else
  int bit = 0;
  for (; (bits & 1) == 0; bits >>= 1) ++bit;
  return bit;
#endif
}

}  // namespace multiverso
