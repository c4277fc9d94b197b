#include "memory/memory_credit.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/text.h"
#include "support/status.h"

namespace multiverso::testing {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMiB = int64_t{1} << 20;

int64_t free_bytes = 0;
int look_ups = 0;

int64_t Free() {
  ++look_ups;
  return free_bytes;
}

class Credit : public ::testing::Test {
 protected:
  Credit() {
    std::memset(static_cast<void*>(&credit_), 0, sizeof(credit_));
    look_ups = 0;
  }

  MemoryCredit credit_;
};

TEST_F(Credit, LooksUpTheFreeMemoryOnlyNowAndThen) {
  free_bytes = 100 * kGiB;
  for (int i = 0; i < 128; ++i) {
    ASSERT_TRUE(credit_.Take(kMiB, Free).ok());
    credit_.GiveBack(kMiB);
  }
  EXPECT_LE(look_ups, 4);
}

TEST_F(Credit, RefusesWhatIsNotFreeAndNamesTheNumbers) {
  free_bytes = 4 * kGiB;
  EXPECT_TRUE(
      IsError(credit_.Take(5 * kGiB, Free), Code::kMemory, SizeText(5 * kGiB), SizeText(4 * kGiB)));
  EXPECT_TRUE(credit_.Take(2 * kGiB, Free).ok());
}

TEST_F(Credit, CountsWhatOtherCallsAreAboutToUse) {
  free_bytes = 4 * kGiB;
  ASSERT_TRUE(credit_.Take(2 * kGiB, Free).ok());
  EXPECT_TRUE(IsError(credit_.Take(2 * kGiB, Free), Code::kMemory));
  credit_.GiveBack(2 * kGiB);
  EXPECT_TRUE(credit_.Take(2 * kGiB, Free).ok());
}

TEST_F(Credit, LeavesSomeMemoryToOtherPrograms) {
  free_bytes = 0;
  EXPECT_TRUE(IsError(credit_.Take(1, Free), Code::kMemory));
  free_bytes = 64 * kMiB;
  EXPECT_TRUE(IsError(credit_.Take(1, Free), Code::kMemory));
}

}  // namespace
}  // namespace multiverso::testing
