// RowOrder: in which order an add visits the rows of a list, whose ids are in any order and may
// repeat. In ascending order, of the ids or of the hashes of keys, the deltas of a row are
// adjacent, and rows of a stripe share a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace multiverso {

// Returns whether each id is larger than the one before it, so that no id repeats.
bool IsAscending(const int64_t* ids, int64_t count);

class RowOrder {
 public:
  // The order of the list itself, which is ascending or may be visited as it is.
  RowOrder() = default;
  // The order of `count` ids, all smaller than `num_row`. Repeated ids keep their order.
  RowOrder(const int64_t* ids, int64_t count, int64_t num_row);

  // Returns the order of keys by KeyHash. Repeated keys are adjacent and keep their order.
  static RowOrder OfKeys(const int64_t* keys, int64_t count);

  // Returns whether a list of that length can be ordered: a row and a position share 64 bits.
  static bool CanOrder(int64_t count, int64_t num_row);

  bool is_of_list() const { return packed_.empty(); }
  // Return the row id at a place in the order, unless it is one of keys, and the position of the id
  // or key in the list `ids`.
  int64_t IdAt(const int64_t* ids, int64_t place) const {
    return is_of_list() ? ids[place] : static_cast<int64_t>(packed_[At(place)] >> position_bits_);
  }
  int64_t PositionAt(int64_t place) const {
    return is_of_list() ? place : static_cast<int64_t>(packed_[At(place)] & position_mask_);
  }
  // Returns the smallest position in the list `ids` whose id is repeated at a larger position, or
  // -1.
  int64_t FirstRepeated(const int64_t* ids) const;

 private:
  static size_t At(int64_t place) { return static_cast<size_t>(place); }

  int position_bits_ = 0;
  uint64_t position_mask_ = 0;
  std::vector<uint64_t> packed_;  // ascending; the id or hash above the position; empty: list order
};

}  // namespace multiverso
