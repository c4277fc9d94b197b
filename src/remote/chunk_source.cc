#include "remote/chunk_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "table/request_message.h"

namespace multiverso {

ChunkSource::ChunkSource(const TableSpec& spec, const Request& request,
                         std::vector<RowRange> ranges)
    : request_(request),
      columns_(spec.num_col),
      element_bytes_(SizeOf(spec.value_type())),
      names_rows_(false),
      ranges_(std::move(ranges)) {
  width_ = columns_;
  if (!request.IsPart()) return;
  first_row_ = request.first / columns_;
  first_column_ = request.first % columns_;
  width_ = request.width > 0 ? request.width : std::min(request.count, columns_);
}

ChunkSource::ChunkSource(const TableSpec& spec, const Request& request,
                         std::vector<int64_t> positions)
    : request_(request),
      columns_(spec.num_col),
      element_bytes_(SizeOf(spec.value_type())),
      id_bytes_(spec.bytes_per_id(request.kind)),
      names_rows_(true),
      positions_(std::move(positions)) {}

ChunkSource ChunkSource::WithoutValues(const TableSpec& spec, const Request& request) {
  ChunkSource source(spec, request, std::vector<RowRange>());
  source.is_without_values_ = true;
  return source;
}

bool ChunkSource::Next(Chunk* chunk) {
  if (stopped_) return false;
  chunk->request = request_;
  chunk->request.delta = nullptr;
  chunk->request.out = nullptr;
  chunk->positions = nullptr;
  chunk->count = chunk->bytes = 0;
  if (is_without_values_) {
    stopped_ = true;
    return true;
  }
  if (!names_rows_) return NextRange(chunk);
  return id_bytes_ > kChunkBytes ? NextOfLongRow(chunk) : NextRows(chunk);
}

void ChunkSource::SetRange(int64_t first, int64_t count, int64_t buffer_first, Chunk* chunk) const {
  chunk->request.first = first;
  chunk->request.count = chunk->count = count;
  chunk->bytes = count * element_bytes_;
  const bool is_exchange = request_.tensors != nullptr;  // whose memory has the whole table
  const int64_t offset = is_exchange ? 0 : buffer_first * element_bytes_;
  if (request_.delta != nullptr) {
    chunk->request.delta = static_cast<const char*>(request_.delta) + offset;
  }
  if (request_.out != nullptr) chunk->request.out = static_cast<char*>(request_.out) + offset;
}

bool ChunkSource::NextRange(Chunk* chunk) {
  while (next_range_ < ranges_.size() && ranges_[next_range_].count() == 0) ++next_range_;
  if (next_range_ == ranges_.size()) return false;
  const int64_t end_element = (ranges_[next_range_].end - first_row_) * width_;
  next_element_ = std::max(next_element_, (ranges_[next_range_].first - first_row_) * width_);
  if (IsTouch(request_.kind)) {
    // One request for all rows of a node has room for all or for none.
    chunk->request.first = next_element_;
    chunk->request.count = chunk->count = end_element - next_element_;
    ++next_range_;
    return true;
  }
  // A chunk has whole rows, or a piece of each or of one row. Every call cuts a row in the same
  // places, so that no chunk ends within a step cell (StepCells).
  const int64_t max_elements = kChunkBytes / element_bytes_;
  const int64_t to_cut = width_ <= max_elements
                             ? max_elements / width_ * width_
                             : std::min(max_elements, width_ - next_element_ % width_);
  SetRange(ElementAt(next_element_), std::min(end_element - next_element_, to_cut), next_element_,
           chunk);
  chunk->request.width = width_ < columns_ && chunk->count > width_ ? width_ : 0;
  next_element_ += chunk->count;
  if (next_element_ == end_element) ++next_range_;
  return true;
}

bool ChunkSource::NextOfLongRow(Chunk* chunk) {
  if (next_position_ >= positions_.size()) return false;
  const int64_t position = positions_[next_position_];
  chunk->request.kind = RangeKindOf(request_.kind);
  SetRange(request_.row_ids[position] * columns_ + next_element_,
           std::min(columns_ - next_element_, kChunkBytes / element_bytes_),
           position * columns_ + next_element_, chunk);
  next_element_ += chunk->count;
  if (next_element_ == columns_) {
    next_element_ = 0;
    ++next_position_;
  }
  return true;
}

bool ChunkSource::NextRows(Chunk* chunk) {
  const auto num_left = static_cast<int64_t>(positions_.size() - next_position_);
  if (num_left == 0) return false;
  // Without values, the chunk counts the bytes of the ids.
  const int64_t row_bytes = id_bytes_ == 0 ? static_cast<int64_t>(sizeof(int64_t)) : id_bytes_;
  chunk->count = std::min({num_left, kChunkIds, kChunkBytes / row_bytes});
  chunk->bytes = chunk->count * row_bytes;
  const int64_t* const positions = positions_.data() + next_position_;
  next_position_ += static_cast<size_t>(chunk->count);
  chunk->ids.resize(static_cast<size_t>(chunk->count));
  for (int64_t i = 0; i < chunk->count; ++i) {
    chunk->ids[static_cast<size_t>(i)] = request_.row_ids[positions[i]];
  }
  chunk->request.row_ids = chunk->ids.data();
  chunk->request.num_ids = chunk->count;
  const int64_t offset = positions[0] * row_bytes;
  const auto* const delta = static_cast<const char*>(request_.delta);
  auto* const out = static_cast<char*>(request_.out);
  if (positions[chunk->count - 1] - positions[0] == chunk->count - 1) {
    if (delta != nullptr) chunk->request.delta = delta + offset;
    if (out != nullptr) chunk->request.out = out + offset;
    return true;
  }
  if (delta == nullptr && out == nullptr) return true;
  chunk->positions = positions;
  chunk->scratch.resize(static_cast<size_t>(chunk->bytes));
  if (delta != nullptr) {
    for (int64_t i = 0; i < chunk->count; ++i) {
      std::memcpy(chunk->scratch.data() + i * row_bytes, delta + positions[i] * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
    chunk->request.delta = chunk->scratch.data();
  }
  if (out != nullptr) chunk->request.out = chunk->scratch.data();
  return true;
}

void ChunkSource::Finish(const Chunk& chunk) const {
  if (chunk.positions == nullptr || chunk.request.out == nullptr) return;
  const int64_t row_bytes = id_bytes_;
  auto* const out = static_cast<char*>(request_.out);
  for (int64_t i = 0; i < chunk.count; ++i) {
    std::memcpy(out + chunk.positions[i] * row_bytes, chunk.scratch.data() + i * row_bytes,
                static_cast<size_t>(row_bytes));
  }
}

}  // namespace multiverso
