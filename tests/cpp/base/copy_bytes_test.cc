#include "base/copy_bytes.h"

#include <gtest/gtest.h>

#include <vector>

namespace multiverso {
namespace {

constexpr size_t kRoom = 20000;
constexpr size_t kPageBytes = 4096;

// Returns where in the memory a place lies that is `offset` bytes behind the beginning of a page.
char* AtOffset(std::vector<char>* memory, size_t offset) {
  const size_t begin = reinterpret_cast<uintptr_t>(memory->data()) % kPageBytes;
  return memory->data() + (kPageBytes - begin) + offset;
}

TEST(CopyBytes, CopiesAllBytesAndNoOthersAtEveryDistance) {
  std::vector<char> source(kRoom + 2 * kPageBytes);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>(i * 7 + i / 251);
  std::vector<char> target(source.size());
  for (const size_t distance : {0, 1, 16, 63, 64, 2048, 4080, 4095}) {
    for (const size_t bytes : {0, 1, 2047, 2048, 2049, 4096, 6144, 6145, 15000}) {
      std::memset(target.data(), 'x', target.size());
      const char* const from = AtOffset(&source, 5);
      char* const to = AtOffset(&target, (5 + distance) % kPageBytes);
      CopyBytes(to, from, bytes);
      ASSERT_EQ(std::memcmp(to, from, bytes), 0) << distance << " " << bytes;
      EXPECT_EQ(to[-1], 'x');
      EXPECT_EQ(to[bytes], 'x');
    }
  }
}

TEST(CopyBytes, TakesAnEmptyArrayWithoutMemory) { CopyBytes(nullptr, nullptr, 0); }

}  // namespace
}  // namespace multiverso
