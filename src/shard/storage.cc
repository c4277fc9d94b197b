#include "shard/storage.h"

#include "base/checked.h"
#include "base/text.h"

namespace multiverso {
namespace {

constexpr int64_t kHoldersOffset = 1024;
constexpr int64_t kTouchCountsOffset = 2048;  // in cache lines of their own
constexpr int64_t kVersionOffset = 3072;      // also, since all writers read it
constexpr int64_t kLocksOffset = kPage;
// Where parameters and state begin in a page. Large arrays of programs begin within the first bytes
// of a page. If two arrays have nearly the same place in their pages, a processor takes a load from
// one for a load of what it has just stored to the other, and waits: loops ran at half the speed.
constexpr int64_t kPlaceInPage = kPage / 2;
constexpr int64_t kCacheLine = 64;
constexpr int64_t kBitsPerWord = 64;
constexpr int64_t kWordBytes = 8;
static_assert(sizeof(Hyper) <= kHoldersOffset);
static_assert(kHoldersOffset + sizeof(Holders) <= kTouchCountsOffset);
static_assert(kTouchCountsOffset + sizeof(TouchCounts) <= kVersionOffset);
static_assert(kVersionOffset + (1 + ChangedRows::kHeld) * kWordBytes <=
              ShardStorage::kHeaderRoomOffset);
static_assert(ShardStorage::kHeaderRoomOffset + ShardStorage::kHeaderRoomBytes <= kLocksOffset);

}  // namespace

Result<ShardStorage> ShardStorage::Plan(const StripeLayout& layout, int64_t value_row_bytes,
                                        int64_t state_slots, const StepCells& step_cells,
                                        int64_t row_state_bytes, bool tracks_rows,
                                        int64_t key_bytes) {
  // The sum of all parts stays far below 2^63 if none exceeds 2^59.
  constexpr int64_t kLimit = int64_t{1} << 59;
  const Status too_large(Code::kMemory, StrCat("cannot hold ", layout.rows(), " rows of ",
                                               SizeText(layout.row_bytes())));
  int64_t slot_bytes = 0;
  int64_t state_bytes = 0;
  int64_t lock_bytes = 0;
  int64_t cell_bytes = 0;
  int64_t all_row_state_bytes = 0;
  if (layout.bytes() > kLimit || !CheckedMultiply(layout.rows(), value_row_bytes, &slot_bytes) ||
      slot_bytes > kLimit || !CheckedMultiply(slot_bytes + kPage, state_slots, &state_bytes) ||
      state_bytes > kLimit || !CheckedMultiply(layout.stripes(), sizeof(StripeLock), &lock_bytes) ||
      lock_bytes > kLimit || !CheckedMultiply(step_cells.count(), sizeof(StepCell), &cell_bytes) ||
      cell_bytes > kLimit ||
      !CheckedMultiply(layout.rows(), row_state_bytes, &all_row_state_bytes) ||
      all_row_state_bytes > kLimit || key_bytes > kLimit) {
    return too_large;
  }
  ShardStorage storage;
  storage.step_cells_ = step_cells;
  storage.step_cells_offset_ = kLocksOffset + lock_bytes;  // aligned, as locks are cache lines
  storage.touched_bits_offset_ = RoundUp(storage.step_cells_offset_ + cell_bytes, kCacheLine);
  const int64_t bit_bytes = tracks_rows ? DivideUp(layout.rows(), kBitsPerWord) * kWordBytes : 0;
  storage.changed_rows_ = ChangedRows(layout);
  storage.changed_bits_offset_ = RoundUp(storage.touched_bits_offset_ + bit_bytes, kCacheLine);
  storage.parameters_offset_ =
      RoundUp(storage.changed_bits_offset_ + storage.changed_rows_.bit_bytes(), kPage) +
      kPlaceInPage;
  storage.tracks_rows_ = tracks_rows;
  storage.row_bytes_ = layout.row_bytes();
  storage.value_row_bytes_ = value_row_bytes;
  const int64_t cells_per_row = layout.rows() == 0 ? 0 : step_cells.count() / layout.rows();
  storage.cell_bytes_per_row_ = cells_per_row * static_cast<int64_t>(sizeof(StepCell));
  storage.bytes_per_row_ = layout.row_bytes() + value_row_bytes * state_slots + row_state_bytes +
                           storage.cell_bytes_per_row_;
  storage.state_slots_ = state_slots;
  storage.state_stride_ = RoundUp(slot_bytes, kPage);
  storage.state_offset_ = storage.parameters_offset_ + RoundUp(layout.bytes(), kPage);
  storage.row_state_offset_ = storage.state_offset_ + state_slots * storage.state_stride_;
  storage.row_state_bytes_ = row_state_bytes;
  storage.key_index_offset_ = RoundUp(storage.row_state_offset_ + all_row_state_bytes, kCacheLine);
  storage.changed_sets_offset_ = RoundUp(storage.key_index_offset_ + key_bytes, kCacheLine);
  storage.segment_bytes_ = storage.changed_sets_offset_ + storage.changed_rows_.set_bytes();
  return storage;
}

int64_t ShardStorage::page_bytes_of(int64_t rows, int64_t page_bytes) const {
  const auto pages_of = [&](int64_t bytes_of_row) {
    return bytes_of_row == 0 ? 0 : RoundUp(rows * bytes_of_row, page_bytes) + page_bytes;
  };
  return pages_of(row_bytes_) + pages_of(value_row_bytes_) * state_slots_ +
         pages_of(row_state_bytes_) + pages_of(cell_bytes_per_row_);
}

std::vector<RowArea> ShardStorage::RowAreas() const {
  std::vector<RowArea> areas = {{step_cells_offset_, cell_bytes_per_row_},
                                {parameters_offset_, row_bytes_}};
  for (int64_t slot = 0; slot < state_slots_; ++slot) {
    areas.push_back({state_offset_ + slot * state_stride_, value_row_bytes_});
  }
  areas.push_back({row_state_offset_, row_state_bytes_});
  return areas;
}

void ShardStorage::Attach(char* base) {
  hyper_ = reinterpret_cast<Hyper*>(base);
  holders_ = reinterpret_cast<Holders*>(base + kHoldersOffset);
  version_ = reinterpret_cast<std::atomic<uint64_t>*>(base + kVersionOffset);
  header_room_ = base + ShardStorage::kHeaderRoomOffset;
  locks_ = reinterpret_cast<StripeLock*>(base + kLocksOffset);
  step_cells_.Attach(reinterpret_cast<StepCell*>(base + step_cells_offset_));
  changed_rows_.Attach(base + changed_bits_offset_, base + changed_sets_offset_, held_versions());
  touch_counts_ = reinterpret_cast<TouchCounts*>(base + kTouchCountsOffset);
  touched_bits_ = reinterpret_cast<std::atomic<uint64_t>*>(base + touched_bits_offset_);
  parameters_ = base + parameters_offset_;
  state_ = base + state_offset_;
  row_state_ = base + row_state_offset_;
  key_index_ = base + key_index_offset_;
}

}  // namespace multiverso
