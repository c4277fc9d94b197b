#include "shard/storage.h"

#include "base/checked.h"
#include "base/text.h"

namespace multiverso {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHoldersOffset = 1024;
constexpr int64_t kLocksOffset = kPage;
// Where parameters and state begin in a page. Large arrays of programs begin within the first bytes
// of a page. If two arrays have nearly the same place in their pages, a processor takes a load from
// one for a load of what it has just stored to the other, and waits: loops ran at half the speed.
constexpr int64_t kPlaceInPage = kPage / 2;
static_assert(sizeof(Hyper) <= kHoldersOffset);
static_assert(kHoldersOffset + sizeof(Holders) <= kLocksOffset);

}  // namespace

Result<ShardStorage> ShardStorage::Plan(const StripeLayout& layout, int64_t state_slots,
                                        const StepCells& step_cells) {
  // The sum of parameters, state, locks and step cells stays far below 2^63 if none exceeds 2^59.
  constexpr int64_t kLargest = int64_t{1} << 59;
  int64_t state_bytes = 0;
  int64_t lock_bytes = 0;
  int64_t cell_bytes = 0;
  if (layout.bytes() > kLargest ||
      !CheckedMultiply(layout.bytes() + kPage, state_slots, &state_bytes) ||
      state_bytes > kLargest ||
      !CheckedMultiply(layout.stripes(), sizeof(StripeLock), &lock_bytes) ||
      lock_bytes > kLargest ||
      !CheckedMultiply(step_cells.count(), sizeof(StepCell), &cell_bytes) ||
      cell_bytes > kLargest) {
    return Status(Code::kMemory,
                  StrCat("cannot hold ", layout.rows(), " rows of ", layout.row_bytes(), " bytes"));
  }
  ShardStorage storage;
  storage.step_cells_ = step_cells;
  storage.step_cells_offset_ = kLocksOffset + lock_bytes;  // aligned, as locks are cache lines
  storage.parameters_offset_ =
      RoundUp(storage.step_cells_offset_ + cell_bytes, kPage) + kPlaceInPage;
  storage.state_slots_ = state_slots;
  storage.state_stride_ = RoundUp(layout.bytes(), kPage);
  storage.state_offset_ = storage.parameters_offset_ + storage.state_stride_;
  storage.segment_bytes_ = storage.state_offset_ + state_slots * storage.state_stride_;
  return storage;
}

void ShardStorage::Attach(char* base) {
  hyper_ = reinterpret_cast<Hyper*>(base);
  holders_ = reinterpret_cast<Holders*>(base + kHoldersOffset);
  locks_ = reinterpret_cast<StripeLock*>(base + kLocksOffset);
  step_cells_.Attach(reinterpret_cast<StepCell*>(base + step_cells_offset_));
  parameters_ = base + parameters_offset_;
  state_ = base + state_offset_;
}

}  // namespace multiverso
