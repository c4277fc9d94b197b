// Copies of memory that may be large (CopyBytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace multiverso {

// Copies memory as std::memcpy does, and also fast if the target begins a few bytes after the
// source, counted from the beginnings of their pages. AMD's processors since Zen 3 then take twenty
// times as long for the string instruction with which glibc copies 4 to 512 KiB
// (https://lunnova.dev/articles/ryzen-slow-short-rep-mov). Large arrays of NumPy begin 16 bytes
// after a page, and shared memory at a page. glibc copies shorter blocks in another way.
//
// An empty array may have no memory.
inline void CopyBytes(void* to, const void* from, size_t bytes) {
  // It is volatile because compilers copy a block of a known size by the same instruction.
  static const volatile size_t kBlock = 2048;
  constexpr uintptr_t kPageBytes = 4096;
  constexpr uintptr_t kNear = 64;
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  if (bytes > kBlock) {
    const uintptr_t ahead =
        (reinterpret_cast<uintptr_t>(target) - reinterpret_cast<uintptr_t>(source)) % kPageBytes;
    const size_t block = ahead != 0 && ahead < kNear ? kBlock : bytes;
    for (; bytes > block; bytes -= block, target += block, source += block) {
      std::memcpy(target, source, block);
    }
  }
  if (bytes > 0) std::memcpy(target, source, bytes);
}

}  // namespace multiverso
