#include "shard/lazy_rows.h"

#include <algorithm>
#include <limits>

#include "base/backoff.h"
#include "base/copy_bytes.h"
#include "base/text.h"

namespace multiverso {
namespace {

constexpr auto kLongestNap = std::chrono::milliseconds(1);

}  // namespace

LazyRows::LazyRows(const StripeLayout& layout, int64_t columns, const ShardStorage& storage,
                   const Initializer& initializer, int64_t first_row, int64_t max_bytes,
                   int64_t page_bytes, int64_t max_rows, const DiskRows* disk)
    : layout_(layout),
      columns_(columns),
      first_row_(first_row),
      max_bytes_(max_bytes),
      page_bytes_(page_bytes),
      max_rows_(max_rows),
      disk_(disk),
      initializer_(initializer),
      storage_(storage),
      counts_(storage.touch_counts()),
      bits_(storage.touched_bits()) {}

int64_t LazyRows::Next(int64_t row, int64_t end, uint64_t flip) const {
  while (row < end) {
    const uint64_t word = WordOf(row)->load(std::memory_order_acquire) ^ flip;
    const uint64_t rest = word >> (row % kWordBits);
    if (rest == 0) {
      row = (row / kWordBits + 1) * kWordBits;
      continue;
    }
    return std::min(row + LowestBit(rest), end);
  }
  return end;
}

void LazyRows::Copy(int64_t byte_offset, int64_t bytes, void* out) const {
  const char* const parameters = storage_.parameters();
  auto* to = static_cast<char*>(out);
  const auto copy = [&](int64_t count) {
    CopyBytes(to, parameters + byte_offset, static_cast<size_t>(count));
    to += count;
    byte_offset += count;
  };
  if (AllTouched()) return copy(bytes);
  const int64_t row_bytes = layout_.row_bytes();
  const int64_t element_bytes = row_bytes / columns_;
  const int64_t end = byte_offset + bytes;
  const int64_t end_row = (end - 1) / row_bytes + 1;
  while (byte_offset < end) {
    const int64_t row = byte_offset / row_bytes;
    const int64_t touched = NextTouched(row, end_row);
    if (touched == row) {
      copy(std::min(end, NextUntouched(row, end_row) * row_bytes) - byte_offset);
      continue;
    }
    for (int64_t untouched = row; untouched < touched; ++untouched) {
      const int64_t in_row = byte_offset - untouched * row_bytes;
      const int64_t count = std::min(end - byte_offset, row_bytes - in_row);
      initializer_.Fill(first_row_ + untouched, in_row / element_bytes, count / element_bytes, to);
      to += count;
      byte_offset += count;
    }
  }
}

bool LazyRows::Touch(int64_t row, int64_t id) const {
  if (IsTouched(row)) return false;
  initializer_.Fill(id, 0, columns_, storage_.parameters() + row * layout_.row_bytes());
  WordOf(row)->fetch_or(uint64_t{1} << (row % kWordBits), std::memory_order_release);
  return true;
}

void LazyRows::Untouch(int64_t row) const {
  WordOf(row)->fetch_and(~(uint64_t{1} << (row % kWordBits)), std::memory_order_release);
}

void LazyRows::GiveBack(int64_t rows) const {
  counts_->touched.fetch_sub(rows, std::memory_order_release);
  counts_->rows_in_use.fetch_sub(rows, std::memory_order_relaxed);
}

LazyRows::Room::~Room() {
  if (owner_ == nullptr) return;
  owner_->counts_->credit.GiveBack(bytes_);
  owner_->counts_->rows_in_use.fetch_sub(rows_ - touched_, std::memory_order_relaxed);
}

void LazyRows::Room::Use(int64_t touched) {
  touched_ += touched;
  owner_->counts_->touched.fetch_add(touched, std::memory_order_release);
}

int64_t LazyRows::max_rows() const {
  const int64_t rows = max_rows_ == 0 ? std::numeric_limits<int64_t>::max() : max_rows_;
  return max_bytes_ == 0 ? rows : std::min(rows, max_bytes_ / storage_.bytes_per_row());
}

Status LazyRows::MakeRoom(int64_t rows, int64_t bytes, Room* room) const {
  const int64_t row_bytes = storage_.bytes_per_row();
  const int64_t max_rows = this->max_rows();
  int64_t in_use = counts_->rows_in_use.load(std::memory_order_relaxed);
  do {
    if (rows > max_rows - in_use) {
      room->in_use_ = in_use;
      if (max_rows == max_rows_) {
        return Status(Code::kMemory, StrCat("cannot hold ", rows, " keys more: expected at most ",
                                            max_rows, " (capacity), received ", in_use + rows,
                                            ", of which ", in_use, " are in use"));
      }
      return Status(Code::kMemory,
                    StrCat("cannot hold ", rows, " rows more: expected at most ",
                           SizeText(max_bytes_), " (max_bytes), received ", in_use + rows,
                           " rows of ", SizeText(row_bytes), ", of which ", in_use, " are in use"));
    }
  } while (!counts_->rows_in_use.compare_exchange_weak(in_use, in_use + rows,
                                                       std::memory_order_relaxed));
  bytes = std::min(bytes, storage_.page_bytes_of(layout_.rows(), page_bytes_));
  // Rows on a disk use the memory that is free.
  if (disk_ != nullptr) bytes = 0;
  const Status taken = bytes == 0 ? Status::Ok() : counts_->credit.Take(bytes);
  if (!taken.ok()) {
    counts_->rows_in_use.fetch_sub(rows, std::memory_order_relaxed);
    room->in_use_ = in_use;
    return taken.In(StrCat("cannot hold ", rows, " rows more of ", SizeText(row_bytes), ", beside ",
                           in_use, " rows in use"));
  }
  room->owner_ = this;
  room->rows_ = rows;
  room->bytes_ = bytes;
  return Status::Ok();
}

template <class Attempt>
Status LazyRows::WaitForRoom(const WaitLimit& limit, Room* room, const Attempt& attempt) const {
  Status made;
  const Instant until = std::min(limit.earliest(), Clock::now() + kLongestWait);
  const Status waited = PollUntil(until, Backoff(kLongestNap), [&]() -> Status {
    // This is read before the attempt counts untouched rows. So if it equals the rows in use, no
    // other call has room, and none has touched a row that the attempt has counted.
    const int64_t touched = counts_->touched.load(std::memory_order_acquire);
    made = attempt();
    if (made.ok() || room->in_use_ == touched) return made;
    MV_RETURN_IF_NOT_OK(limit.Check(Clock::now()));
    return Status::Pending();
  });
  return waited.pending() && Clock::now() < limit.slice_end ? made : waited;
}

int64_t LazyRows::NewBytesOf(int64_t row) const {
  const int64_t stripe = layout_.stripe_of(row);
  const int64_t end = layout_.end_row(stripe);
  const bool is_page_there = page_bytes_ >= layout_.rows_per_stripe() * storage_.bytes_per_row() &&
                             NextTouched(layout_.first_row(stripe), end) < end;
  return is_page_there ? 2 * storage_.bytes_per_row() : storage_.page_bytes_of(1, page_bytes_);
}

Status LazyRows::MakeRoomForRows(const std::function<Rows()>& count_rows, const WaitLimit& limit,
                                 Room* room) const {
  return WaitForRoom(limit, room, [&] {
    const Rows rows = count_rows();
    if (rows.count == 0 || MakeRoom(rows.count, rows.new_bytes, room).ok()) return Status::Ok();
    // The rows of a stripe are filled in their order, so that few pages are new.
    return MakeRoom(rows.count, 2 * rows.count * storage_.bytes_per_row(), room);
  });
}

void LazyRows::TakeRoom(int64_t rows, Room* room) const {
  while (rows > 0) {
    const int64_t free = max_rows() - counts_->rows_in_use.load(std::memory_order_relaxed);
    rows = std::min(rows, free);
    if (rows <= 0 || MakeRoom(rows, 2 * rows * storage_.bytes_per_row(), room).ok()) return;
    rows /= 2;
  }
}

Status LazyRows::MakeRoomForIds(const int64_t* row_ids, int64_t count, const WaitLimit& limit,
                                Room* room) const {
  // Nobody gives back room on the disk, so there is nothing to wait for.
  for (int64_t i = 0; i < count && disk_ != nullptr; ++i) {
    const int64_t row = row_ids[i] - first_row_;
    if (!IsTouched(row)) MV_RETURN_IF_NOT_OK(ReserveOnDisk(row));
  }
  return WaitForRoom(limit, room, [&] { return TryMakeRoomForIds(row_ids, count, room); });
}

Status LazyRows::TryMakeRoomForIds(const int64_t* row_ids, int64_t count, Room* room) const {
  Rows rows;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = row_ids[i] - first_row_;
    if (IsTouched(row)) continue;
    ++rows.count;
    rows.new_bytes += NewBytesOf(row);
  }
  // This counts a row that is named twice as two, and a page that two rows need as two.
  if (rows.count == 0 || MakeRoom(rows.count, rows.new_bytes, room).ok()) return Status::Ok();
  std::vector<int64_t> untouched;
  untouched.reserve(static_cast<size_t>(rows.count));
  for (int64_t i = 0; i < count; ++i) {
    if (!IsTouched(row_ids[i] - first_row_)) untouched.push_back(row_ids[i] - first_row_);
  }
  std::sort(untouched.begin(), untouched.end());
  untouched.erase(std::unique(untouched.begin(), untouched.end()), untouched.end());
  int64_t bytes = 0;
  for (size_t i = 0; i < untouched.size();) {
    const size_t first = i++;
    while (i < untouched.size() && untouched[i] == untouched[i - 1] + 1) ++i;
    bytes += storage_.page_bytes_of(static_cast<int64_t>(i - first), page_bytes_);
  }
  return MakeRoom(static_cast<int64_t>(untouched.size()), bytes, room);
}

Status LazyRows::MakeRoomForRange(int64_t first, int64_t end, const WaitLimit& limit,
                                  Room* room) const {
  for (int64_t row = first; row < end && disk_ != nullptr;) {
    row = NextUntouched(row, end);
    if (row == end) break;
    MV_RETURN_IF_NOT_OK(ReserveOnDisk(row));
    row = layout_.end_row(layout_.stripe_of(row));
  }
  return WaitForRoom(limit, room, [&] {
    int64_t rows = 0;
    int64_t bytes = 0;
    for (int64_t row = NextUntouched(first, end); row < end; row = NextUntouched(row, end)) {
      const int64_t run_end = NextTouched(row, end);
      rows += run_end - row;
      bytes += storage_.page_bytes_of(run_end - row, page_bytes_);
      row = run_end;
    }
    return rows == 0 ? Status::Ok() : MakeRoom(rows, bytes, room);
  });
}

}  // namespace multiverso
