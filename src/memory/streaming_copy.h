// Copies to memory that is not read again soon, bypassing the caches where the processor can.
#ifndef MULTIVERSO_MEMORY_STREAMING_COPY_H_
#define MULTIVERSO_MEMORY_STREAMING_COPY_H_

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace multiverso {

// Says whether the copied data is read again soon.
enum class ReadAgain { kSoon, kLate };

// Copies as memcpy does. An ordinary store first reads the cache line that it writes to, so a copy
// moves three bytes per byte. memcpy avoids that read only for copies much larger than a stripe.
inline void StreamingCopy(char* to, const char* from, int64_t bytes) {
#if defined(__SSE2__)
  constexpr int64_t kVector = sizeof(__m128i);
  const auto beyond = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kVector);
  const int64_t head = beyond == 0 ? 0 : kVector - beyond;
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
