// LazyRows: the rows of a shard that have their initial values until their first update.
//
// A bit per row tells whether the row has been touched: whether its initial values have been
// written to the parameters. The values of other rows are computed when they are read, and their
// pages, and those of their state, use no memory. The bits are never cleared, not even by a load,
// except in hash tables, whose rows are in use by a key or free (KeyIndex).
//
// A call touches all rows that it will change before it changes the first one. If the rows need
// more memory than the machine or the table may use, the call fails at that point and has changed
// nothing. Touching a row does not change its values, so rows that a failed call has touched do no
// harm. A row is touched under its stripe's lock: the values are written first, and then the bit,
// with release order. So a reader that sees the bit sees the values, without a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/status.h"
#include "memory/limits.h"
#include "numbers/initializer.h"
#include "shard/disk_rows.h"
#include "shard/storage.h"
#include "shard/stripe_layout.h"

namespace multiverso {

class LazyRows {
 public:
  // `storage` is attached and tracks rows. `first_row` is the table's row at which the shard
  // begins; other rows here are counted from the shard's first row. `max_bytes` limits the bytes of
  // parameters and state of touched rows, and `max_rows` these rows; 0 sets no limit. `page_bytes`
  // is the size of the pages. `disk` reserves room for rows that do not lie in memory.
  LazyRows(const StripeLayout& layout, int64_t columns, const ShardStorage& storage,
           const Initializer& initializer, int64_t first_row, int64_t max_bytes,
           int64_t page_bytes = PageBytes(), int64_t max_rows = 0, const DiskRows* disk = nullptr);

  const InitializerSpec& spec() const { return initializer_.spec(); }
  bool AllTouched() const {
    return counts_->touched.load(std::memory_order_acquire) == layout_.rows();
  }
  bool IsTouched(int64_t row) const {
    return (WordOf(row)->load(std::memory_order_acquire) >> (row % kWordBits) & 1) != 0;
  }
  void Prefetch(int64_t row) const { MV_PREFETCH(WordOf(row), 0); }
  // Return the first touched or untouched row from `row` on, or `end` if there is none before.
  int64_t NextTouched(int64_t row, int64_t end) const { return Next(row, end, 0); }
  int64_t NextUntouched(int64_t row, int64_t end) const { return Next(row, end, ~uint64_t{0}); }
  // Copies parameters from a byte offset on. As with a plain copy, the caller excludes changes of
  // the rows, or repeats the copy.
  void Copy(int64_t byte_offset, int64_t bytes, void* out) const;
  // Writes initial values of row `id` of the table, or of the key `id`, to `out`.
  void Fill(int64_t id, int64_t column, int64_t count, void* out) const {
    initializer_.Fill(id, column, count, out);
  }
  int64_t touched() const { return counts_->touched.load(std::memory_order_acquire); }
  // Touches a row, under its stripe's lock. Returns false if the row was touched before. The
  // initial values are those of the row, or those of the key `id`.
  bool Touch(int64_t row) const { return Touch(row, first_row_ + row); }
  bool Touch(int64_t row, int64_t id) const;
  // Clears the bit of a touched row, under its stripe's lock. The row still counts as touched, so
  // that another one may be touched in its place, or GiveBack be called.
  void Untouch(int64_t row) const;
  void GiveBack(int64_t rows) const;

  // Room: the memory for rows that a call is about to touch, which no other call can then have.
  // What the call has not used is given back when the object is destroyed. If the rank dies before,
  // the room of this one call stays in use.
  class Room {
   public:
    Room() = default;
    ~Room();
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

    int64_t rows() const { return rows_; }
    int64_t left() const { return rows_ - touched_; }
    void Use(int64_t touched);  // counts rows that have been touched

   private:
    friend class LazyRows;
    const LazyRows* owner_ = nullptr;
    int64_t rows_ = 0;
    int64_t bytes_ = 0;
    int64_t touched_ = 0;
    int64_t in_use_ = 0;  // the rows in use when there was no room
  };
  // How long a call waits for room that other calls may give back. A dead rank gives none back.
  static constexpr auto kLongestWait = std::chrono::seconds(5);

  // Take room for the untouched rows in a list of rows of the table, or in a range of rows of the
  // shard. Wait while other calls may give room back, at most for kLongestWait, and return pending
  // when the limit's slice ends before. Return MemoryError if there is no room then.
  Status MakeRoomForIds(const int64_t* row_ids, int64_t count, const WaitLimit& limit,
                        Room* room) const;
  Status MakeRoomForRange(int64_t first, int64_t end, const WaitLimit& limit, Room* room) const;
  // Takes room for the rows that count_rows() returns, in the same way, for which the caller has
  // reserved room on the disk.
  struct Rows {
    int64_t count = 0;
    int64_t new_bytes = 0;  // the sum of NewBytesOf
  };
  Status MakeRoomForRows(const std::function<Rows()>& count_rows, const WaitLimit& limit,
                         Room* room) const;
  // Returns the most memory that touching an untouched row may need. If a row of its stripe has
  // been touched, a page that is larger than a stripe is there.
  int64_t NewBytesOf(int64_t row) const;
  // Reserves room on the disk for a row, if the rows lie there.
  Status ReserveOnDisk(int64_t row) const {
    return disk_ == nullptr ? Status::Ok() : disk_->ReserveStripeOf(row);
  }
  // Takes room for at most `rows` rows, and possibly for none.
  void TakeRoom(int64_t rows, Room* room) const;
  // Returns whether rows are touched, or calls have room for some.
  bool HasRowsInUse() const { return counts_->rows_in_use.load(std::memory_order_relaxed) > 0; }

 private:
  static constexpr int64_t kWordBits = 64;

  std::atomic<uint64_t>* WordOf(int64_t row) const { return bits_ + row / kWordBits; }
  // Returns the first row from `row` on whose bit differs from the bits of `flip`.
  int64_t Next(int64_t row, int64_t end, uint64_t flip) const;
  template <class Attempt>
  Status WaitForRoom(const WaitLimit& limit, Room* room, const Attempt& attempt) const;
  Status TryMakeRoomForIds(const int64_t* row_ids, int64_t count, Room* room) const;
  Status MakeRoom(int64_t rows, int64_t bytes, Room* room) const;
  int64_t max_rows() const;

  StripeLayout layout_;
  int64_t columns_;
  int64_t first_row_;
  int64_t max_bytes_;
  int64_t page_bytes_;
  int64_t max_rows_;
  const DiskRows* disk_;
  Initializer initializer_;
  ShardStorage storage_;
  TouchCounts* counts_;
  std::atomic<uint64_t>* bits_;
};

}  // namespace multiverso
