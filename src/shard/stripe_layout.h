// StripeLayout: how the rows of a shard are divided into stripes, each with its own lock.
#pragma once

#include <algorithm>
#include <cstdint>

namespace multiverso {

// An array is a matrix with one column. A row never crosses a stripe boundary, and the number of
// rows per stripe is a power of two, so a shift finds the stripe of a row.
class StripeLayout {
 public:
  // Large enough to make the cost of the lock negligible beside the copy; small enough to stay in
  // the cache between the two passes of an operation and to let many workers in at once.
  static constexpr int64_t kStripeBytes = int64_t{64} << 10;

  StripeLayout() = default;
  // A stripe has at most `stripe_bytes`, or one row if a row is longer.
  StripeLayout(int64_t rows, int64_t row_bytes, int64_t stripe_bytes = kStripeBytes)
      : rows_(rows), row_bytes_(row_bytes) {
    // The product row_bytes << shift would overflow for rows that no machine can hold.
    while (row_bytes <= stripe_bytes >> (shift_ + 1)) ++shift_;
  }

  int64_t rows() const { return rows_; }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t bytes() const { return rows_ * row_bytes_; }
  int64_t rows_per_stripe() const { return int64_t{1} << shift_; }
  int64_t stripes() const {
    return (rows_ >> shift_) + ((rows_ & (rows_per_stripe() - 1)) != 0 ? 1 : 0);
  }
  int64_t stripe_of(int64_t row) const { return row >> shift_; }
  int64_t first_row(int64_t stripe) const { return stripe << shift_; }
  int64_t end_row(int64_t stripe) const { return std::min(rows_, (stripe + 1) << shift_); }

 private:
  int64_t rows_ = 0;
  int64_t row_bytes_ = 0;
  int shift_ = 0;
};

}  // namespace multiverso
