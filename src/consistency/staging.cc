#include "consistency/staging.h"

#include "base/checked.h"
#include "shard/row_merge.h"

namespace multiverso {
namespace {

constexpr auto kAddsBytes = Staging::kAdds * static_cast<int64_t>(sizeof(StagedAdd));

int64_t HeaderBytes(int workers) { return RoundUp(workers * kAddsBytes, kPage); }

// A buffer holds row ids and then values.
int64_t BufferBytes(const StagedShape& shape) {
  return RoundUp(shape.layout.rows() * static_cast<int64_t>(sizeof(int64_t)), kPage) +
         RoundUp(shape.layout.bytes(), kPage);
}

}  // namespace

bool Staging::BytesFor(const StagedShape& shape, int workers, int64_t* bytes) {
  // The address space of a process ends at 2^47. Below kLargest / 16, BufferBytes cannot overflow.
  constexpr int64_t kLargest = int64_t{1} << 46;
  if (shape.layout.rows() > kLargest / 16 || shape.layout.bytes() > kLargest / 16) return false;
  return CheckedMultiply(BufferBytes(shape), int64_t{workers} * kBuffers, bytes) &&
         CheckedAdd(*bytes, HeaderBytes(workers), bytes) && *bytes <= kLargest;
}

Staging::Staging(char* base, const StagedShape& shape, int workers)
    : base_(base), shape_(shape), workers_(workers), buffer_bytes_(BufferBytes(shape)) {}

StagedAdd* Staging::add_of(int worker, uint64_t round) const {
  return reinterpret_cast<StagedAdd*>(base_ + worker * kAddsBytes) +
         static_cast<int64_t>(round % kAdds);
}

int64_t* Staging::row_ids(int worker, int buffer) const {
  return reinterpret_cast<int64_t*>(base_ + HeaderBytes(workers_) +
                                    (int64_t{worker} * kBuffers + buffer) * buffer_bytes_);
}

char* Staging::values(int worker, int buffer) const {
  return reinterpret_cast<char*>(row_ids(worker, buffer)) +
         RoundUp(shape_.layout.rows() * static_cast<int64_t>(sizeof(int64_t)), kPage);
}

DeltaSource Staging::SourceOf(int index, int worker, uint64_t round) const {
  const StagedAdd& add = *add_of(index, round);
  if (add.is_rows == 0) {
    const char* const staged = values(index, add.buffer);
    return DeltaSource::Whole(worker, add.lent != nullptr ? add.lent : staged);
  }
  return DeltaSource::Rows(worker, values(index, add.buffer), row_ids(index, add.buffer),
                           add.count);
}

int64_t Staging::StageRows(int worker, int buffer, const int64_t* ids, int64_t count,
                           const void* delta) const {
  return MergeRows(RowDelta{ids, count, delta}, RowOrder(ids, count, shape_.layout.rows()),
                   shape_.columns, shape_.dtype, row_ids(worker, buffer), values(worker, buffer));
}

}  // namespace multiverso
