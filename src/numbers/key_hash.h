// KeyHash: the hash of the keys of hash tables. It decides on which node and in which stripe a
// key's row is.
#pragma once

#include <cstdint>

namespace multiverso {

// The finalizer of splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
// Generators", OOPSLA 2014). Different keys have different hashes. docs/checkpoint-format.md
// promises this function to readers of files.
inline uint64_t KeyHash(int64_t key) {
  uint64_t x = static_cast<uint64_t>(key) + 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// Returns the stripe of a key in a table of `stripes` stripes, fewer than 2^32. It grows with the
// hash.
inline int64_t StripeOfKey(int64_t key, int64_t stripes) {
  return static_cast<int64_t>((KeyHash(key) >> 32) * static_cast<uint64_t>(stripes) >> 32);
}

}  // namespace multiverso
