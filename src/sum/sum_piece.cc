#include "sum/sum_piece.h"

#include <cstring>

#include "base/checked.h"

namespace multiverso {
namespace {

constexpr auto kHeaderBytes = static_cast<int64_t>(sizeof(PieceHeader));
constexpr auto kListedBytes = static_cast<int64_t>(sizeof(ListedSegment));

}  // namespace

void SumPiece::Begin(const PieceHeader& start, int64_t value_bytes) {
  bytes.resize(static_cast<size_t>(kHeaderBytes + value_bytes));
  *header() = start;
}

bool SumPiece::IsValid(const SegmentGrid& grid) const {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size < kHeaderBytes || header()->magic != PieceHeader::kMagic) return false;
  const PieceHeader& start = *header();
  if (start.first < 0 || start.end <= start.first || start.end > grid.segments()) return false;
  if (start.listed < 0) {
    return start.listed == -1 && start.end <= grid.EndOfPiece(start.first) &&
           size == kHeaderBytes + grid.Bytes(start.first, start.end);
  }
  if (size % kListedBytes != 0 || start.listed > (size - kHeaderBytes) / kListedBytes) return false;
  int64_t value_bytes = 0;
  int64_t least = start.first;
  for (int64_t i = 0; i < start.listed; ++i) {
    const int64_t segment = segments()[i].at();
    if (segment < least || segment >= start.end) return false;
    value_bytes += grid.Bytes(segment, segment + 1);
    least = segment + 1;
  }
  return size == kHeaderBytes + RoundUp(value_bytes, kListedBytes) + start.listed * kListedBytes;
}

DeltaSource SumPiece::Source() const {
  const PieceHeader& start = *header();
  return start.listed < 0 ? DeltaSource::Whole(start.worker, values(), start.first, start.terms)
                          : DeltaSource::Segments(start.worker, values(), segments(), start.listed);
}

ListedPiece::ListedPiece(const SegmentGrid& grid, SumPiece* piece, const PieceHeader& start)
    : grid_(grid), piece_(piece) {
  piece_->Begin(start, 0);
}

bool ListedPiece::Begin(int64_t segment, int64_t terms) {
  const auto bytes = static_cast<int64_t>(piece_->bytes.size() + listed_.size() * kListedBytes);
  if (!listed_.empty() && bytes + grid_.Bytes(segment, segment + 1) > grid_.piece_bytes()) {
    return false;
  }
  listed_.push_back(ListedSegment{static_cast<uint64_t>(segment), static_cast<uint64_t>(terms)});
  return true;
}

char* ListedPiece::Append(int64_t count) {
  const size_t at = piece_->bytes.size();
  piece_->bytes.resize(at + static_cast<size_t>(count * grid_.element_bytes()));
  return piece_->bytes.data() + at;
}

void ListedPiece::End(int64_t end) {
  std::string& bytes = piece_->bytes;
  bytes.resize(static_cast<size_t>(RoundUp(static_cast<int64_t>(bytes.size()), kListedBytes)));
  bytes.append(reinterpret_cast<const char*>(listed_.data()), listed_.size() * kListedBytes);
  piece_->header()->end = end;
  piece_->header()->listed = static_cast<int64_t>(listed_.size());
}

}  // namespace multiverso
