#include "shard/stripe_layout.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

TEST(StripeLayout, PutsEveryRowInExactlyOneStripe) {
  for (const int64_t row_bytes : {4, 8, 12, 20, 256, 4000, 32768, 32769, 65536, 65540, 1000000}) {
    for (const int64_t rows : {1, 2, 3, 7, 1000, 16384, 16385, 40001}) {
      const StripeLayout layout(rows, row_bytes);
      int64_t next = 0;
      for (int64_t stripe = 0; stripe < layout.stripes(); ++stripe) {
        ASSERT_EQ(layout.first_row(stripe), next);
        ASSERT_GT(layout.end_row(stripe), next);
        ASSERT_EQ(layout.stripe_of(next), stripe);
        ASSERT_EQ(layout.stripe_of(layout.end_row(stripe) - 1), stripe);
        next = layout.end_row(stripe);
      }
      ASSERT_EQ(next, rows);
    }
  }
}

TEST(StripeLayout, MakesStripesAsLargeAsAllowed) {
  for (const int64_t row_bytes : {4, 8, 12, 256, 4000, 32768}) {
    const StripeLayout layout(1000000, row_bytes);
    const int64_t stripe_bytes = layout.end_row(0) * row_bytes;
    EXPECT_LE(stripe_bytes, StripeLayout::kStripeBytes) << row_bytes;
    EXPECT_GT(2 * stripe_bytes, StripeLayout::kStripeBytes) << row_bytes;
  }
}

TEST(StripeLayout, MakesStripesNoLargerThanRequested) {
  for (const int64_t wished : {4, 4096, 5000, 100000}) {
    const StripeLayout layout(10000, 4, wished);
    EXPECT_LE(4 * layout.rows_per_stripe(), wished);
    EXPECT_GT(2 * 4 * layout.rows_per_stripe(), wished);
  }
  EXPECT_EQ(StripeLayout(5, 100, 64).stripes(), 5);
}

TEST(StripeLayout, GivesALargeRowItsOwnStripe) {
  for (const int64_t row_bytes : {int64_t{32769}, int64_t{65536}, int64_t{1} << 40}) {
    const StripeLayout layout(5, row_bytes);
    EXPECT_EQ(layout.stripes(), 5) << row_bytes;
    EXPECT_EQ(layout.bytes(), 5 * row_bytes);
  }
}

TEST(StripeLayout, AcceptsRowsOfAnySizeWithoutOverflow) {
  for (const int64_t row_bytes : {int64_t{1} << 61, int64_t{1} << 62, INT64_MAX}) {
    const StripeLayout layout(1, row_bytes);
    EXPECT_EQ(layout.stripes(), 1) << row_bytes;
    EXPECT_EQ(layout.end_row(0), 1) << row_bytes;
  }
  const StripeLayout many(INT64_MAX / 4, 4);
  EXPECT_EQ(many.end_row(many.stripes() - 1), INT64_MAX / 4);
  EXPECT_EQ(many.stripe_of(INT64_MAX / 4 - 1), many.stripes() - 1);
}

}  // namespace
}  // namespace multiverso
