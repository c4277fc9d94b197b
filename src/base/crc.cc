#include "base/crc.h"

#include <array>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#define MV_HAS_CRC_INSTRUCTION 1
#if defined(__clang__)
#define MV_CRC_TARGET "sse4.2,crc32"
#else
#define MV_CRC_TARGET "sse4.2"
#endif
#elif defined(__aarch64__) && defined(__linux__) && defined(__GNUC__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define MV_HAS_CRC_INSTRUCTION 1
#else
#define MV_HAS_CRC_INSTRUCTION 0
#endif

namespace multiverso {
namespace {

// The polynomial 0x1EDC6F41 with its bits in reverse order.
constexpr uint32_t kPolynomial = 0x82F63B78U;

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b] is the remainder of byte b followed by k zero bytes ("slicing by 8": M. Kounavis and
// F. Berry, "A Systematic Approach to Building High Performance Software-Based CRC Generators",
// ISCC 2005).
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1U) != 0 ? kPolynomial : 0U);
    }
    tables[0][byte] = remainder;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t previous = tables[k - 1][byte];
      tables[k][byte] = (previous >> 8) ^ tables[0][previous & 0xFFU];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

#if defined(__x86_64__) && defined(__GNUC__)

bool HasCrcInstruction() { return __builtin_cpu_supports("sse4.2") != 0; }

__attribute__((target(MV_CRC_TARGET))) uint32_t AppendByInstruction(const unsigned char* input,
                                                                    int64_t bytes,
                                                                    uint32_t remainder) {
  uint64_t wide = remainder;
  for (; bytes >= 8; input += 8, bytes -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, input, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  auto narrow = static_cast<uint32_t>(wide);
  for (; bytes > 0; ++input, --bytes) narrow = _mm_crc32_u8(narrow, *input);
  return narrow;
}

#elif MV_HAS_CRC_INSTRUCTION

bool HasCrcInstruction() {
  constexpr unsigned long kHwcapCrc32 = 1UL << 7;  // NOLINT: the type of getauxval
  return (getauxval(AT_HWCAP) & kHwcapCrc32) != 0;
}

__attribute__((target("+crc"))) uint32_t AppendByInstruction(const unsigned char* input,
                                                             int64_t bytes, uint32_t remainder) {
  for (; bytes >= 8; input += 8, bytes -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, input, 8);
    remainder = __crc32cd(remainder, word);
  }
  for (; bytes > 0; ++input, --bytes) remainder = __crc32cb(remainder, *input);
  return remainder;
}

#endif

}  // namespace

uint32_t PortableCrc32c(const void* data, int64_t bytes, uint32_t crc) {
  const auto* input = static_cast<const unsigned char*>(data);
  uint32_t remainder = ~crc;
  for (; bytes >= 8; input += 8, bytes -= 8) {
    uint32_t updated =
        kTables[3][input[4]] ^ kTables[2][input[5]] ^ kTables[1][input[6]] ^ kTables[0][input[7]];
    for (size_t i = 0; i < 4; ++i) {
      updated ^= kTables[7 - i][input[i] ^ ((remainder >> (8 * i)) & 0xFFU)];
    }
    remainder = updated;
  }
  for (; bytes > 0; ++input, --bytes) {
    remainder = (remainder >> 8) ^ kTables[0][(remainder ^ *input) & 0xFFU];
  }
  return ~remainder;
}

uint32_t Crc32c(const void* data, int64_t bytes, uint32_t crc) {
#if MV_HAS_CRC_INSTRUCTION
  static const bool has_crc_instruction = HasCrcInstruction();
  if (has_crc_instruction) {
    return ~AppendByInstruction(static_cast<const unsigned char*>(data), bytes, ~crc);
  }
#endif
  return PortableCrc32c(data, bytes, crc);
}

}  // namespace multiverso
