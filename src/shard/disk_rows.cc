#include "shard/disk_rows.h"

#include <utility>

#include "memory/file_segment.h"
#include "memory/limits.h"

namespace multiverso {
namespace {

// The most stripes and bytes that are reserved together. Larger groups make fewer system calls, and
// take room for more rows that are not used. The bytes of wide rows may be more, in a stripe alone.
constexpr int64_t kMostStripes = 16;
constexpr int64_t kMostBytes = int64_t{4} << 20;
constexpr int64_t kPagesPerWord = 64;
// The part of the memory that the pages which count as used lately may take.
constexpr int64_t kUsedParts = 4;

}  // namespace

DiskRows::DiskRows(const Segment* file, const StripeLayout& layout, const ShardStorage& storage,
                   const std::vector<RowArea>& of_keys)
    : file_(file), layout_(layout), storage_(storage), row_areas_(storage.RowAreas()) {
  const auto is_empty = [](const RowArea& area) { return area.bytes_each == 0; };
  row_areas_.erase(std::remove_if(row_areas_.begin(), row_areas_.end(), is_empty),
                   row_areas_.end());
  for (const RowArea& area : row_areas_) {
    stripe_areas_.push_back({area.offset, area.bytes_each * layout.rows_per_stripe()});
  }
  for (const RowArea& area : of_keys) {
    stripe_areas_.push_back({storage.key_index() - file->data() + area.offset, area.bytes_each});
  }
  int64_t bytes = 1;  // of a stripe
  for (const RowArea& area : stripe_areas_) bytes += area.bytes_each;
  stripes_per_group_ = std::clamp<int64_t>(kMostBytes / bytes, 1, kMostStripes);
  ExpectRandomUse(*file);
  const int64_t words = file->bytes() / PageBytes() / kPagesPerWord + 1;
  most_used_ = MemoryCeiling() / PageBytes() / kUsedParts;
  // Without this memory, all pages are read ahead, and are then in memory already.
  auto used = Segment::CreatePrivate(words * static_cast<int64_t>(sizeof(uint64_t)));
  if (used.ok()) used_ = std::move(used.value());
}

Status DiskRows::ReserveAll() const { return ReserveOnDisk(*file_, 0, storage_.segment_bytes()); }

Status DiskRows::ReserveAllButRows() const {
  int64_t end = 0;
  for (const RowArea& area : stripe_areas_) {
    if (area.offset > end) MV_RETURN_IF_NOT_OK(ReserveOnDisk(*file_, end, area.offset - end));
    end = std::max(end, area.offset + area.bytes_each * layout_.stripes());
  }
  const int64_t rest = file_->bytes() - end;
  return rest > 0 ? ReserveOnDisk(*file_, end, rest) : Status::Ok();
}

Status DiskRows::ReserveStripeOf(int64_t row) const {
  const int64_t first = layout_.stripe_of(row) / stripes_per_group_ * stripes_per_group_;
  std::atomic<uint32_t>& has_room = storage_.lock(first)->has_room;
  if (has_room.load(std::memory_order_relaxed) != 0) return Status::Ok();
  MV_RETURN_IF_NOT_OK(ReserveGroup(first));
  has_room.store(1, std::memory_order_relaxed);
  return Status::Ok();
}

Status DiskRows::ReserveAgain() const {
  for (int64_t first = 0; first < layout_.stripes(); first += stripes_per_group_) {
    if (storage_.lock(first)->has_room.load(std::memory_order_relaxed) == 0) continue;
    MV_RETURN_IF_NOT_OK(ReserveGroup(first));
  }
  return Status::Ok();
}

Status DiskRows::ReserveGroup(int64_t first_stripe) const {
  const int64_t count = std::min(stripes_per_group_, layout_.stripes() - first_stripe);
  for (const RowArea& area : stripe_areas_) {
    MV_RETURN_IF_NOT_OK(ReserveOnDisk(*file_, area.offset + first_stripe * area.bytes_each,
                                      count * area.bytes_each));
  }
  return Status::Ok();
}

void DiskRows::Expect(const void* address, int64_t bytes) const {
  const int64_t page_bytes = PageBytes();
  const int64_t offset = static_cast<const char*>(address) - file_->data();
  const int64_t end = (offset + bytes - 1) / page_bytes + 1;
  for (int64_t page = offset / page_bytes; page < end; ++page) {
    if (WasUsedLately(page)) continue;
    const int64_t first = page++;
    while (page < end && !WasUsedLately(page)) ++page;
    ReadAhead(*file_, first * page_bytes, (page - first) * page_bytes);
  }
}

void DiskRows::ExpectRows(int64_t first, int64_t count, bool state) const {
  count = std::min(count, layout_.rows() - first);
  if (count <= 0) return;
  for (const RowArea& area : row_areas_) {
    const char* const begin = file_->data() + area.offset;
    const bool is_parameters = begin == storage_.parameters();
    if (state || is_parameters) Expect(begin + first * area.bytes_each, count * area.bytes_each);
  }
}

bool DiskRows::WasUsedLately(int64_t page) const {
  if (!used_.is_mapped()) return false;
  auto* const words = reinterpret_cast<std::atomic<uint64_t>*>(used_.data());
  std::atomic<uint64_t>& word = words[page / kPagesPerWord];
  const uint64_t bit = uint64_t{1} << (page % kPagesPerWord);
  if ((word.load(std::memory_order_relaxed) & bit) != 0) return true;
  if (num_used_.fetch_add(1, std::memory_order_relaxed) >= most_used_) {
    const int64_t count = used_.bytes() / static_cast<int64_t>(sizeof(uint64_t));
    for (int64_t i = 0; i < count; ++i) {
      if (words[i].load(std::memory_order_relaxed) != 0) {
        words[i].store(0, std::memory_order_relaxed);
      }
    }
    num_used_.store(1, std::memory_order_relaxed);
  }
  word.fetch_or(bit, std::memory_order_relaxed);
  return false;
}

}  // namespace multiverso
