// Copies that bypass the caches, where the processor can do so, to memory that is not read soon.
#ifndef MULTIVERSO_MEMORY_STREAMING_COPY_H_
#define MULTIVERSO_MEMORY_STREAMING_COPY_H_

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace multiverso {

// When the copy is read.
enum class ReadAgain { kSoon, kLate };

// Has the result of memcpy. An ordinary store first reads the cache line that it writes to, so an
// ordinary copy of one byte moves three bytes to or from memory. memcpy avoids the read of the line
// only for copies much larger than a stripe.
inline void StreamingCopy(char* to, const char* from, int64_t bytes) {
#if defined(__SSE2__)
  constexpr int64_t kVector = sizeof(__m128i);
  const auto misalignment = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kVector);
  const int64_t head = misalignment == 0 ? 0 : kVector - misalignment;
  if (bytes > head + kVector) {
    std::memcpy(to, from, static_cast<size_t>(head));
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= kVector; to += kVector, from += kVector, bytes -= kVector) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
    _mm_sfence();  // streaming stores are not ordered with other stores
  }
#endif
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

inline void CopyFor(ReadAgain when, char* to, const char* from, int64_t bytes) {
  if (when == ReadAgain::kLate) {
    StreamingCopy(to, from, bytes);
  } else {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_STREAMING_COPY_H_
