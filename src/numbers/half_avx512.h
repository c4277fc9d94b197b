// Conversions of float16 by the instructions of AVX-512. Their results are those of the loops in
// half.cc, bit by bit.
//
// Each function returns how many elements it has converted: whole vectors, up to the first one that
// has an element for which the instructions do something else than the loops.
#pragma once

#include <cstdint>

#include "base/mix.h"
#include "numbers/vector_versions.h"
#if MV_HAS_VECTOR_VERSIONS
#if !defined(__clang__)
// GCC 12 takes the results whose lanes are all set for uninitialized ones.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#endif

namespace multiverso::half::avx512 {

constexpr int64_t kLanes = 16;

#if MV_HAS_VECTOR_VERSIONS

// Returns whether the processor has the instructions.
inline bool IsAvailable() {
  static const bool is_available = __builtin_cpu_supports("avx512f") != 0;
  return is_available;
}

constexpr uint32_t kMagnitude = 0x7fffffffU;

__attribute__((target("avx512f"))) inline __m512i InAllLanes(uint32_t value) {
  return _mm512_set1_epi32(static_cast<int32_t>(value));
}

__attribute__((target("avx512f"))) inline int64_t ToFloat(const uint16_t* from, int64_t count,
                                                          float* to) {
  int64_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    const __m512 values =
        _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + done)));
    // The instruction makes signaling NaN quiet.
    const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(values), InAllLanes(kMagnitude));
    if (_mm512_cmpge_epu32_mask(magnitude, InAllLanes(0x7f800000U)) != 0) break;
    _mm512_storeu_ps(to + done, values);
  }
  return done;
}

__attribute__((target("avx512f"))) inline int64_t RoundToNearest(const float* from, int64_t count,
                                                                 uint16_t* to) {
  int64_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + done),
                        _mm512_cvtps_ph(_mm512_loadu_ps(from + done),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  return done;
}

// Adds the random bits below the last bit of float16, and rounds towards zero.
__attribute__((target("avx512f"))) inline int64_t RoundStochastically(const float* from,
                                                                      int64_t count, uint32_t first,
                                                                      RandomBits random,
                                                                      uint16_t* to) {
  constexpr uint32_t kGolden = 0x9e3779b9U;  // as in RandomBits::Of
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  __m512i counters =
      _mm512_mullo_epi32(_mm512_add_epi32(lanes, InAllLanes(first)), InAllLanes(kGolden));
  counters = _mm512_add_epi32(counters, InAllLanes(random.low));
  int64_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    const __m512i bits = _mm512_castps_si512(_mm512_loadu_ps(from + done));
    const __m512i magnitude = _mm512_and_si512(bits, InAllLanes(kMagnitude));
    // From 65504 on, the result may be infinity, to which the instruction does not round.
    if (_mm512_cmpge_epu32_mask(magnitude, InAllLanes(0x477fe000U)) != 0) break;
    __m512i mixed = _mm512_xor_si512(counters, _mm512_srli_epi32(counters, 16));
    mixed = _mm512_mullo_epi32(mixed, InAllLanes(0x85ebca6bU));
    mixed = _mm512_xor_si512(mixed, _mm512_srli_epi32(mixed, 13));
    mixed = _mm512_mullo_epi32(mixed, InAllLanes(0xc2b2ae35U));
    mixed = _mm512_xor_si512(mixed, _mm512_srli_epi32(mixed, 16));
    mixed = _mm512_xor_si512(mixed, InAllLanes(random.high));
    counters = _mm512_add_epi32(counters, InAllLanes(kGolden * static_cast<uint32_t>(kLanes)));
    __m512 sums = _mm512_castsi512_ps(_mm512_add_epi32(magnitude, _mm512_srli_epi32(mixed, 19)));
    const __mmask16 small = _mm512_cmplt_epu32_mask(magnitude, InAllLanes(113U << 23));
    if (small != 0) {
      // Below 2^-14, the last bit is 2^-24.
      const __m512 added =
          _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srli_epi32(mixed, 16)), _mm512_set1_ps(0x1p-40F));
      sums = _mm512_mask_add_ps(sums, small, _mm512_castsi512_ps(magnitude), added);
    }
    const __m512i signs = _mm512_andnot_si512(InAllLanes(kMagnitude), bits);
    const __m512i rounded = _mm512_or_si512(_mm512_castps_si512(sums), signs);
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(to + done),
        _mm512_cvtps_ph(_mm512_castsi512_ps(rounded), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC));
  }
  return done;
}

#else

inline bool IsAvailable() { return false; }
inline int64_t ToFloat(const uint16_t*, int64_t, float*) { return 0; }
inline int64_t RoundToNearest(const float*, int64_t, uint16_t*) { return 0; }
inline int64_t RoundStochastically(const float*, int64_t, uint32_t, RandomBits, uint16_t*) {
  return 0;
}

#endif

}  // namespace multiverso::half::avx512
