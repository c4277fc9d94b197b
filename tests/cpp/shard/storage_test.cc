#include "shard/storage.h"

#include <gtest/gtest.h>

#include "support/status.h"

namespace multiverso::testing {
namespace {

TEST(ShardStorage, LaysOutItsPartsConsecutively) {
  for (const int64_t rows : {1, 3, 16385, 1000003}) {
    for (const int64_t slots : {0, 1, 2}) {
      const StripeLayout layout(rows, 12);
      ShardStorage plan = ValueOf(ShardStorage::Plan(layout, layout.row_bytes(), slots));
      // The test only computes with the address and never accesses its memory.
      char* const base = reinterpret_cast<char*>(uintptr_t{1} << 40);
      plan.Attach(base);
      char* const locks = reinterpret_cast<char*>(plan.lock(0));
      EXPECT_EQ(reinterpret_cast<char*>(plan.hyper()), base);
      EXPECT_GE(locks, base + sizeof(Hyper));
      EXPECT_GE(plan.parameters(), reinterpret_cast<char*>(plan.lock(layout.stripes())));
      EXPECT_GE(plan.state(), plan.parameters() + layout.bytes());
      EXPECT_GE(plan.state_stride(), layout.bytes());
      EXPECT_EQ(base + plan.segment_bytes(), plan.state() + slots * plan.state_stride());
    }
  }
}

TEST(ShardStorage, AlignsLocksToCacheLinesAndDataToTheMiddlesOfPages) {
  ShardStorage plan = ValueOf(ShardStorage::Plan(StripeLayout(1000003, 4), 4, 1));
  plan.Attach(reinterpret_cast<char*>(uintptr_t{1} << 40));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(plan.lock(1)) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(plan.parameters()) % 4096, 2048U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(plan.state()) % 4096, 2048U);
  EXPECT_EQ(plan.state_stride() % 4096, 0);
}

// If these places change, files of tables do, and so must kFormat in table/table_file.cc.
TEST(ShardStorage, HasThePlacesOfFormat4OfFiles) {
  ShardStorage plan =
      ValueOf(ShardStorage::Plan(StripeLayout(100000, 64), 64, 2, StepCells(), 8, true, 64));
  char* const base = reinterpret_cast<char*>(uintptr_t{1} << 40);
  plan.Attach(base);
  EXPECT_EQ(reinterpret_cast<char*>(plan.touched_bits()) - base, 10368);
  EXPECT_EQ(plan.parameters() - base, 38912);
  EXPECT_EQ(plan.state() - base, 6440960);
  EXPECT_EQ(plan.segment_bytes(), 20098432);
}

TEST(ShardStorage, NeedsLittleMoreThanItsParameters) {
  const int64_t bytes = int64_t{8} << 30;
  const ShardStorage plan = ValueOf(ShardStorage::Plan(StripeLayout(bytes / 4, 4), 4, 0));
  EXPECT_LE(plan.segment_bytes(), bytes + bytes / 512);
}

TEST(ShardStorage, RejectsSizesBeyond64Bits) {
  struct Case {
    int64_t rows;
    int64_t row_bytes;
    int64_t slots;
  };
  for (const Case& c : std::vector<Case>{{1, INT64_MAX, 0},
                                         {1, (int64_t{1} << 59) + 1, 0},
                                         {1, int64_t{1} << 58, 4},
                                         {int64_t{1} << 60, 4, 1}}) {
    const Result<ShardStorage> plan =
        ShardStorage::Plan(StripeLayout(c.rows, c.row_bytes), c.row_bytes, c.slots);
    EXPECT_EQ(plan.status().code(), Code::kMemory) << c.rows << " x " << c.row_bytes;
  }
}

}  // namespace
}  // namespace multiverso::testing
