#include "sum/delta_source.h"

namespace multiverso {

DeltaSource DeltaSource::Whole(int worker, const char* values, int64_t first, int64_t terms) {
  DeltaSource source;
  source.worker_ = worker;
  source.values_ = values;
  source.first_ = first;
  source.terms_ = terms;
  return source;
}

DeltaSource DeltaSource::Rows(int worker, const char* values, const int64_t* row_ids,
                              int64_t count) {
  DeltaSource source = Whole(worker, values);
  source.row_ids_ = row_ids;
  source.count_ = count;
  return source;
}

DeltaSource DeltaSource::Segments(int worker, const char* values, const ListedSegment* listed,
                                  int64_t count) {
  DeltaSource source = Whole(worker, values);
  source.listed_ = listed;
  source.count_ = count;
  return source;
}

int64_t DeltaSource::Next(const SegmentGrid& grid) const {
  if (index_ >= count_) return kNone;
  return listed_ != nullptr ? listed_[index_].segment() : row_ids_[index_] * grid.per_row() + part_;
}

void DeltaSource::SeekRow(const SegmentGrid& grid, int64_t row) {
  if (row_ids_ == nullptr) return;  // lists no rows
  const int64_t from = index_;
  const int64_t done = grid.Bytes(0, part_);  // bytes of the row that values_ has passed
  index_ = std::lower_bound(row_ids_, row_ids_ + count_, row) - row_ids_;
  part_ = 0;
  values_ += (index_ - from) * grid.Bytes(0, grid.per_row()) - done;
}

void DeltaSource::Step(const SegmentGrid& grid) {
  const int64_t segment = Next(grid);
  values_ += grid.Bytes(segment, segment + 1);
  if (row_ids_ != nullptr && ++part_ < grid.per_row()) return;
  part_ = 0;
  ++index_;
}

}  // namespace multiverso
