#include "shard/row_order.h"

#include <algorithm>

namespace multiverso {
namespace {

// Returns how many bits the numbers 0 to `end` - 1 need.
int BitsOf(int64_t end) {
  int bits = 0;
  while (bits < 63 && (int64_t{1} << bits) < end) ++bits;
  return bits;
}

// Sorts by the bits from `first_bit` to `end_bit` - 1, in passes over the list that each place the
// keys by some of the bits and keep the order of keys whose bits are equal.
void SortByBits(std::vector<uint64_t>* keys, int first_bit, int end_bit) {
  constexpr int kMostBits = 11;  // the counters of a pass fit into the first-level cache
  const int passes = (end_bit - first_bit + kMostBits - 1) / kMostBits;
  std::vector<uint64_t> sorted(keys->size());
  std::vector<uint32_t> starts;
  for (int pass = 0; pass < passes; ++pass) {
    const int bits = (end_bit - first_bit + passes - pass - 1) / (passes - pass);
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    starts.assign(mask + 2, 0);
    for (const uint64_t key : *keys) ++starts[(key >> first_bit & mask) + 1];
    for (size_t i = 1; i <= mask; ++i) starts[i] += starts[i - 1];
    for (const uint64_t key : *keys) sorted[starts[key >> first_bit & mask]++] = key;
    keys->swap(sorted);
    first_bit += bits;
  }
}

}  // namespace

bool IsAscending(const int64_t* ids, int64_t count) {
  for (int64_t i = 1; i < count; ++i) {
    if (ids[i - 1] >= ids[i]) return false;
  }
  return true;
}

bool RowOrder::CanOrder(int64_t count, int64_t num_row) {
  return BitsOf(count) + BitsOf(num_row) <= 64 && count <= int64_t{UINT32_MAX};
}

RowOrder::RowOrder(const int64_t* ids, int64_t count, int64_t num_row)
    : position_bits_(BitsOf(count)), position_mask_((uint64_t{1} << position_bits_) - 1) {
  // Passes over a short list would cost more than comparisons.
  constexpr int64_t kMostCompared = 256;
  if (IsAscending(ids, count)) return;
  keys_.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    keys_[At(i)] = static_cast<uint64_t>(ids[i]) << position_bits_ | static_cast<uint64_t>(i);
  }
  if (count <= kMostCompared) {
    std::sort(keys_.begin(), keys_.end());
  } else {
    SortByBits(&keys_, position_bits_, position_bits_ + BitsOf(num_row));
  }
}

int64_t RowOrder::FirstRepeated() const {
  int64_t found = -1;
  for (size_t i = 1; i < keys_.size(); ++i) {
    if (keys_[i - 1] >> position_bits_ != keys_[i] >> position_bits_) continue;
    const auto position = static_cast<int64_t>(keys_[i - 1] & position_mask_);
    if (found < 0 || position < found) found = position;
  }
  return found;
}

}  // namespace multiverso
