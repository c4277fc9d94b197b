#include "shard/row_order.h"

#include <algorithm>

#include "numbers/key_hash.h"

namespace multiverso {
namespace {

// Passes over a short list would cost more than comparisons.
constexpr int64_t kMostCompared = 256;
constexpr int kSortedHashBits = 22;  // two passes

// Returns how many bits the numbers 0 to `end` - 1 need.
int BitsFor(int64_t end) {
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
  return BitsFor(count) + BitsFor(num_row) <= 64 && count <= int64_t{UINT32_MAX};
}

RowOrder::RowOrder(const int64_t* ids, int64_t count, int64_t num_row)
    : position_bits_(BitsFor(count)), position_mask_((uint64_t{1} << position_bits_) - 1) {
  if (IsAscending(ids, count)) return;
  packed_.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    packed_[At(i)] = static_cast<uint64_t>(ids[i]) << position_bits_ | static_cast<uint64_t>(i);
  }
  if (count <= kMostCompared) {
    std::sort(packed_.begin(), packed_.end());
  } else {
    SortByBits(&packed_, position_bits_, position_bits_ + BitsFor(num_row));
  }
}

RowOrder RowOrder::OfKeys(const int64_t* keys, int64_t count) {
  RowOrder order;
  order.position_bits_ = BitsFor(count);
  order.position_mask_ = (uint64_t{1} << order.position_bits_) - 1;
  order.packed_.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    order.packed_[At(i)] = (KeyHash(keys[i]) & ~order.position_mask_) | static_cast<uint64_t>(i);
  }
  std::vector<uint64_t>& sorted = order.packed_;
  if (count <= kMostCompared) {
    std::sort(sorted.begin(), sorted.end());
  } else {
    // Keys share few of these bits, so that the order of the others needs few comparisons.
    SortByBits(&sorted, 64 - kSortedHashBits, 64);
  }
  // Different keys whose sorted bits are equal may alternate.
  const auto prefix_of = [&](uint64_t key) {
    return count <= kMostCompared ? key >> order.position_bits_ : key >> (64 - kSortedHashBits);
  };
  const auto is_before = [&](uint64_t a, uint64_t b) {
    const uint64_t hash_a = KeyHash(keys[a & order.position_mask_]);
    const uint64_t hash_b = KeyHash(keys[b & order.position_mask_]);
    return hash_a != hash_b ? hash_a < hash_b
                            : (a & order.position_mask_) < (b & order.position_mask_);
  };
  for (size_t first = 0; first < sorted.size();) {
    size_t end = first + 1;
    bool alternate = false;
    for (; end < sorted.size() && prefix_of(sorted[end]) == prefix_of(sorted[first]); ++end) {
      alternate = alternate || (sorted[end] ^ sorted[first]) > order.position_mask_;
    }
    if (alternate || (count <= kMostCompared && end - first > 1)) {
      std::sort(sorted.begin() + static_cast<int64_t>(first),
                sorted.begin() + static_cast<int64_t>(end), is_before);
    }
    first = end;
  }
  return order;
}

int64_t RowOrder::FirstRepeated(const int64_t* ids) const {
  int64_t found = -1;
  for (size_t i = 1; i < packed_.size(); ++i) {
    const auto position = static_cast<int64_t>(packed_[i - 1] & position_mask_);
    if (ids[position] != ids[static_cast<int64_t>(packed_[i] & position_mask_)]) continue;
    if (found < 0 || position < found) found = position;
  }
  return found;
}

}  // namespace multiverso
