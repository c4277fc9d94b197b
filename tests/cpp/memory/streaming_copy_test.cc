#include "memory/streaming_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace multiverso {
namespace {

TEST(StreamingCopy, CopiesExactlyTheBytesAtAnyAlignment) {
  std::vector<char> from(400);
  std::iota(from.begin(), from.end(), static_cast<char>(1));
  for (int64_t bytes = 0; bytes < 200; ++bytes) {
    for (int64_t begin : {0, 1, 7, 16}) {
      for (int64_t target : {0, 1, 8, 15}) {
        std::vector<char> to(400, 'x');
        StreamingCopy(to.data() + target, from.data() + begin, bytes);
        std::vector<char> expected(400, 'x');
        std::copy_n(from.begin() + begin, bytes, expected.begin() + target);
        ASSERT_EQ(to, expected) << bytes << " bytes from " << begin << " to " << target;
      }
    }
  }
}

}  // namespace
}  // namespace multiverso
