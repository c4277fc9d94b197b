#include "memory/limits.h"

#include <gtest/gtest.h>
#include <sys/sysinfo.h>

#include <string>

#include "base/text.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

TEST(MemoryCeiling, DoesNotExceedPhysicalMemoryAndSwap) {
  struct sysinfo info{};
  ASSERT_EQ(sysinfo(&info), 0);
  const auto machine_bytes = static_cast<int64_t>(info.totalram + info.totalswap) * info.mem_unit;
  EXPECT_GT(MemoryCeiling(), 1 << 20);
  EXPECT_LE(MemoryCeiling(), machine_bytes);
}

TEST(CheckFitsInMemory, AllowsSizesUpToTheCeiling) {
  EXPECT_TRUE(CheckFitsInMemory(0).ok());
  EXPECT_TRUE(CheckFitsInMemory(1).ok());
  EXPECT_TRUE(CheckFitsInMemory(MemoryCeiling()).ok());
}

TEST(CheckFitsInMemory, RejectsLargerSizesAndNamesTheCeiling) {
  const int64_t ceiling = MemoryCeiling();
  for (const int64_t bytes : {ceiling + 1, INT64_MAX}) {
    EXPECT_TRUE(
        IsError(CheckFitsInMemory(bytes), Code::kMemory, SizeText(bytes), SizeText(ceiling)));
  }
}

}  // namespace
}  // namespace multiverso::testing
