// ShardStorage: where everything of a shard lies inside its segment.
//
//   hyper-parameters, holders, touch counts, versions, room for a header | one lock per stripe |
//   step cells | bits of touched rows | bits of changed rows | parameters | state | row state |
//   key index | earlier bits of changed rows
//
// State has a value for each parameter in each slot, row state a few numbers for each row.
// Everything but the hyper-parameters and the holders is valid when zero-filled, so planning and
// attaching a shard touches no page. The callers set the hyper-parameters and the holders.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "memory/memory_credit.h"
#include "numbers/hyper.h"
#include "shard/changed_rows.h"
#include "shard/step_cells.h"
#include "shard/stripe_layout.h"
#include "shard/stripe_lock.h"

namespace multiverso {

// Counts, in a session that spans nodes, who may still use the shard.
struct Holders {
  std::atomic<uint32_t> ranks_here;      // ranks of this node that have not released the table
  std::atomic<uint32_t> nodes_released;  // other nodes whose ranks have all released the table
};

// Counts the rows of a shard that tracks which of them have been touched (LazyRows).
struct TouchCounts {
  std::atomic<int64_t> touched;
  std::atomic<int64_t> rows_in_use;  // touched rows, and those that calls have made room for
  MemoryCredit credit;
};

// A part of the segment with so many bytes for each row, or each stripe.
struct RowArea {
  int64_t offset;
  int64_t bytes_each;
};

class ShardStorage {
 public:
  ShardStorage() = default;
  // Plans all parts of a shard, with `state_slots` arrays of a row of `value_row_bytes` for each
  // row, `row_state_bytes` of further state for each row, and `key_bytes` of a KeyIndex. Returns
  // MemoryError if the plan is too large for 64-bit arithmetic.
  static Result<ShardStorage> Plan(const StripeLayout& layout, int64_t value_row_bytes,
                                   int64_t state_slots, const StepCells& step_cells = StepCells(),
                                   int64_t row_state_bytes = 0, bool tracks_rows = false,
                                   int64_t key_bytes = 0);

  int64_t segment_bytes() const { return segment_bytes_; }
  bool tracks_rows() const { return tracks_rows_; }
  // Returns the bytes before the parameters, which grow far less than the parameters.
  int64_t bytes_before_parameters() const { return parameters_offset_; }
  // Returns the bytes of a row's parameters and state.
  int64_t bytes_per_row() const { return bytes_per_row_; }
  // Returns the most bytes of pages that a run of consecutive rows takes when touched.
  int64_t page_bytes_of(int64_t rows, int64_t page_bytes) const;
  // Lays the storage over a segment of at least segment_bytes().
  void Attach(char* base);

  Hyper* hyper() const { return hyper_; }
  Holders* holders() const { return holders_; }
  // Returns the version that the next changes note (StripeLock).
  std::atomic<uint64_t>* version() const { return version_; }
  // Returns the versions that ChangedRows keeps apart.
  std::atomic<uint64_t>* held_versions() const { return version_ + 1; }
  // Returns kHeaderRoomBytes for a description of the shard, zero-filled and unused by the shard.
  char* header_room() const { return header_room_; }
  static constexpr int64_t kHeaderRoomBytes = 960;
  static constexpr int64_t kHeaderRoomOffset = 3136;  // from the base of the segment
  StripeLock* lock(int64_t stripe) const { return locks_ + stripe; }
  const StepCells& step_cells() const { return step_cells_; }
  const ChangedRows& changed_rows() const { return changed_rows_; }
  TouchCounts* touch_counts() const { return touch_counts_; }
  std::atomic<uint64_t>* touched_bits() const { return touched_bits_; }
  char* parameters() const { return parameters_; }
  char* state() const { return state_; }
  int64_t state_stride() const { return state_stride_; }
  int64_t state_slots() const { return state_slots_; }
  char* row_state(int64_t row) const { return row_state_ + row * row_state_bytes_; }
  int64_t row_state_bytes() const { return row_state_bytes_; }
  char* key_index() const { return key_index_; }
  // Returns the parts of the segment that have the same number of bytes for each row.
  std::vector<RowArea> RowAreas() const;
  int64_t value_row_bytes() const { return value_row_bytes_; }

 private:
  int64_t segment_bytes_ = 0;
  bool tracks_rows_ = false;
  int64_t bytes_per_row_ = 0;
  int64_t cell_bytes_per_row_ = 0;
  int64_t row_bytes_ = 0;
  int64_t value_row_bytes_ = 0;
  int64_t step_cells_offset_ = 0;
  int64_t touched_bits_offset_ = 0;
  int64_t changed_bits_offset_ = 0;
  int64_t parameters_offset_ = 0;
  int64_t state_offset_ = 0;
  int64_t state_stride_ = 0;
  int64_t state_slots_ = 0;
  int64_t row_state_offset_ = 0;
  int64_t row_state_bytes_ = 0;
  int64_t key_index_offset_ = 0;
  int64_t changed_sets_offset_ = 0;
  Hyper* hyper_ = nullptr;
  Holders* holders_ = nullptr;
  std::atomic<uint64_t>* version_ = nullptr;
  char* header_room_ = nullptr;
  StripeLock* locks_ = nullptr;
  StepCells step_cells_;
  ChangedRows changed_rows_;
  TouchCounts* touch_counts_ = nullptr;
  std::atomic<uint64_t>* touched_bits_ = nullptr;
  char* parameters_ = nullptr;
  char* state_ = nullptr;
  char* row_state_ = nullptr;
  char* key_index_ = nullptr;
};

}  // namespace multiverso
