// Copies to memory that is not read soon, or that another core has read and will read again: in
// code built for SSE2, the stores bypass the caches.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace multiverso {

// When the copy will be read. kLater: after so much other data that no cache would still hold it.
enum class NextRead { kSoon, kLater };

// Copies as memcpy does, with less memory traffic. An ordinary store first reads the cache line
// that it writes to, so an ordinary copy moves each byte three times, a streaming copy only twice.
// The memcpy of glibc streams only copies that are much larger than a stripe.
inline void StreamingCopy(char* to, const char* from, int64_t bytes) {
#if defined(__SSE2__)
  constexpr int64_t kVectorBytes = sizeof(__m128i);
  const auto misalignment = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kVectorBytes);
  const int64_t head_bytes = misalignment == 0 ? 0 : kVectorBytes - misalignment;
  if (bytes > head_bytes + kVectorBytes) {
    std::memcpy(to, from, static_cast<size_t>(head_bytes));
    to += head_bytes;
    from += head_bytes;
    bytes -= head_bytes;
    for (; bytes >= kVectorBytes; to += kVectorBytes, from += kVectorBytes, bytes -= kVectorBytes) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
    _mm_sfence();  // streaming stores are not ordered with other stores
  }
#endif
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Uses StreamingCopy if the copy is read later, and otherwise leaves the copy in the caches.
inline void CopyFor(NextRead next_read, char* to, const char* from, int64_t bytes) {
  if (next_read == NextRead::kLater) return StreamingCopy(to, from, bytes);
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace multiverso
