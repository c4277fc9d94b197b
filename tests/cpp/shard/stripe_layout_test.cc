#include "shard/stripe_layout.h"

#include <gtest/gtest.h>

namespace multiverso {
namespace {

// A row that is longer than a stripe is a stripe by itself.
TEST(StripeLayout, PutsEveryRowInExactlyOneStripeAsLargeAsAllowed) {
  for (const int64_t stripe_bytes : {int64_t{64}, int64_t{5000}, StripeLayout::kStripeBytes}) {
    for (const int64_t row_bytes : {4, 12, 256, 4000, 32768, 32769, 65536, 65540, 1000000}) {
      for (const int64_t rows : {1, 2, 3, 7, 1000, 16384, 16385, 40001}) {
        const StripeLayout layout(rows, row_bytes, stripe_bytes);
        const int64_t full = layout.rows_per_stripe() * row_bytes;
        EXPECT_TRUE(full <= stripe_bytes || layout.rows_per_stripe() == 1) << row_bytes;
        EXPECT_GT(2 * full, stripe_bytes) << row_bytes;
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
