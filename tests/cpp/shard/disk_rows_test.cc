#include "shard/disk_rows.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <utility>

#include "memory/file_segment.h"
#include "shard/key_index.h"
#include "support/checkpoints.h"

namespace multiverso::testing {
namespace {

class DiskRowsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 200000;
  static constexpr int64_t kRowBytes = 256;

  // Creates a file for lazy rows with two slots of state and four bytes of row state.
  void SetUp() override {
    auto storage = ShardStorage::Plan(layout_, kRowBytes, /*state_slots=*/2, StepCells(),
                                      /*row_state_bytes=*/4, /*tracks_rows=*/true,
                                      BytesOfKeys(layout_.stripes(), policy_));
    ASSERT_TRUE(storage.ok());
    storage_ = storage.value();
    auto file = OpenFileSegment(folder_.path() + "/rows", storage_.segment_bytes());
    if (file.status().code() == Code::kUnsupported) GTEST_SKIP() << file.status().text();
    ASSERT_TRUE(file.ok()) << file.status().text();
    file_ = std::move(file.value());
    storage_.Attach(file_.data());
  }

  DiskRows Rows() const {
    return DiskRows(&file_, layout_, storage_, ArraysOfKeys(layout_.stripes()));
  }
  // Returns the bytes for which the disk has room.
  int64_t BytesOnDisk() const {
    struct stat info{};
    EXPECT_EQ(fstat(file_.fd(), &info), 0);
    return int64_t{info.st_blocks} * 512;
  }

  TemporaryFolder folder_;
  KeyPolicy policy_;
  StripeLayout layout_{kRows, kRowBytes, KeyIndex::kRowsPerStripe* kRowBytes};
  ShardStorage storage_;
  Segment file_;
};

TEST_F(DiskRowsTest, ReservesARowWithAllThatBelongsToIt) {
  const DiskRows rows = Rows();
  ASSERT_TRUE(rows.ReserveAllButRows().ok());
  const int64_t before = BytesOnDisk();
  EXPECT_LT(before, storage_.segment_bytes() / 20);
  ASSERT_TRUE(rows.ReserveStripeOf(kRows / 2).ok());
  const int64_t one = BytesOnDisk();
  // Several stripes of 512 rows, with their state and their keys.
  EXPECT_GE(one - before, 4 * 512 * 3 * kRowBytes);
  EXPECT_LT(one - before, 5 << 20);
  ASSERT_TRUE(rows.ReserveStripeOf(kRows / 2 + 1).ok());
  EXPECT_EQ(BytesOnDisk(), one);
  ASSERT_TRUE(rows.ReserveStripeOf(kRows - 1).ok());
  EXPECT_GT(BytesOnDisk(), one);
}

TEST_F(DiskRowsTest, TheRowsAndTheRestAreEverything) {
  const DiskRows rows = Rows();
  ASSERT_TRUE(rows.ReserveAllButRows().ok());
  for (int64_t row = 0; row < kRows; ++row) ASSERT_TRUE(rows.ReserveStripeOf(row).ok());
  EXPECT_GE(BytesOnDisk(), storage_.segment_bytes());
}

TEST(RowsAheadTest, NamesEachRowOnceAndSomeRowsAhead) {
  const DiskRows* const some = reinterpret_cast<const DiskRows*>(&some);  // only compared with null
  for (const int64_t count : {0L, 1L, 4096L, 10000L, 50001L}) {
    RowsAhead ahead(some, 0, count);
    int64_t named = 0;
    const auto name = [&](int64_t first, int64_t end) {
      EXPECT_EQ(first, named);
      named = end;
    };
    for (int64_t at = 0; at < count;) {
      const int64_t until = ahead.Advance(at, name);
      EXPECT_GT(until, at);
      EXPECT_EQ(named, std::min(count, at + 2 * RowsAhead::kRows));
      EXPECT_LE(until, named);
      at = until + at % 2 * std::min(count - until, RowsAhead::kRows / 2);  // as AddRows may
    }
    EXPECT_EQ(named, count);
  }
  RowsAhead in_memory(nullptr, 0, 10);
  EXPECT_EQ(in_memory.Advance(0, [](int64_t, int64_t) { FAIL(); }), 10);
}

}  // namespace
}  // namespace multiverso::testing
