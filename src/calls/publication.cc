#include "calls/publication.h"

#include <algorithm>
#include <vector>

#include "base/failpoint.h"
#include "base/text.h"
#include "memory/limits.h"
#include "shard/shard_copies.h"

namespace multiverso {

Publication::Publication(Table* table, uint64_t number, int buffer)
    : table_(table),
      number_(number),
      header_(table->here()->header()),
      buffer_(
          &header_->buffers[header_->published_spec.is_lazy() ? number % 2
                                                              : static_cast<uint64_t>(buffer)]) {}

Status Publication::Copy(int share, int shares, const WaitLimit& limit) {
  const TableSpec& spec = header_->published_spec;
  const StripeLayout layout = TableShard::LayoutOf(spec, header_->published_rows.count());
  MV_ASSIGN_OR_RETURN(ShardStorage storage, TableShard::StorageOf(spec, layout, /*workers=*/0));
  storage.Attach(table_->here()->segment()->data() + buffer_->offset);
  const int64_t since = buffer_->changed_since.load();
  if (since == 0 && !spec.is_lazy()) MV_RETURN_IF_NOT_OK(CheckIsFree(layout.bytes() / shares));
  std::vector<RowRange> changed;
  MV_ASSIGN_OR_RETURN(version_, table_->ListChangesNow(since, &changed, limit));
  // Neighbouring stripes go to different ranks, because changes are often close together.
  const int64_t origin = header_->published_rows.first;
  std::vector<RowRange> mine;
  for (const RowRange& rows : changed) {
    const int64_t end = std::min(rows.end, header_->published_rows.end);
    for (int64_t row = std::max(rows.first, origin); row < end;) {
      const int64_t stripe = layout.stripe_of(row - origin);
      const int64_t next = std::min(end, origin + layout.end_row(stripe));
      if (stripe % shares == share) mine.push_back(RowRange{row, next});
      row = next;
    }
  }
  (void)MV_FAILPOINT("publish.copy");
  if (!spec.is_lazy()) return table_->GetRanges(mine, storage.parameters(), limit);
  int64_t copied = -1;
  for (const RowRange& rows : mine) {
    const int64_t stripe = layout.stripe_of(rows.first - origin);
    if (stripe != copied) {
      MV_RETURN_IF_NOT_OK(ShardCopies(table_->shard()).CopyStripeTo(stripe, storage, limit));
    }
    copied = stripe;
  }
  return Status::Ok();
}

void Publication::Complete() {
  buffer_->changed_since.store(version_);
  buffer_->published.store(number_);
}

int BufferWith(uint64_t publication, NodeControl* control, const TableHeader& header) {
  const bool is_lazy = header.published_spec.is_lazy();
  std::atomic_thread_fence(std::memory_order_acquire);  // reads of the buffer come before
  for (int i = 0; publication != 0 && i < TableHeader::BuffersOf(header.published_spec); ++i) {
    const uint64_t content = control->content_of(is_lazy, i).load() & ~NodeControl::kMayBeTaken;
    if (content == publication && header.buffers[i].published.load() == publication) return i;
  }
  return -1;
}

Result<const char*> PublishedParameters(const TableHeader& header, char* base, int buffer) {
  const TableSpec& spec = header.published_spec;
  if (spec.is_lazy()) {
    return Status(Code::kValue, StrCat("expected a table all of whose rows exist, received ",
                                       spec.Describe(), ", of which View.cut makes a copy"));
  }
  const StripeLayout layout = TableShard::LayoutOf(spec, header.published_rows.count());
  MV_ASSIGN_OR_RETURN(ShardStorage storage, TableShard::StorageOf(spec, layout, /*workers=*/0));
  storage.Attach(base + header.buffers[buffer].offset);
  return static_cast<const char*>(storage.parameters());
}

}  // namespace multiverso
