// The finalizers of MurmurHash3 (Appleby, 2011), which turn counters into bits that look random.
#pragma once

#include <cstdint>

#include "base/compiler.h"

namespace multiverso {

inline MV_ALWAYS_INLINE uint64_t Mix64(uint64_t bits) {
  bits = (bits ^ bits >> 33) * 0xff51afd7ed558ccdU;
  bits = (bits ^ bits >> 33) * 0xc4ceb9fe1a85ec53U;
  return bits ^ bits >> 33;
}

inline MV_ALWAYS_INLINE uint32_t Mix32(uint32_t bits) {
  bits = (bits ^ bits >> 16) * 0x85ebca6bU;
  bits = (bits ^ bits >> 13) * 0xc2b2ae35U;
  return bits ^ bits >> 16;
}

// The random bits of elements in counter mode. Loops over elements vectorize.
struct RandomBits {
  uint32_t low;
  uint32_t high;

  // This is not a constructor, because Clang leaves an inline constructor undefined if only
  // functions with several vector versions call it.
  static inline MV_ALWAYS_INLINE RandomBits FromKey(uint64_t key) {
    return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  }

  // Returns 16 bits.
  inline MV_ALWAYS_INLINE uint32_t Of(uint32_t element) const {
    return (Mix32(low + element * 0x9e3779b9U) ^ high) >> 16;
  }
};

}  // namespace multiverso
