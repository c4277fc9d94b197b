#include "sum/sum_piece.h"

#include <algorithm>
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
    const int64_t segment = segments()[i].segment();
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

int64_t SumPiece::ListedBytes() const {
  return std::max<int64_t>(header()->listed, 0) * kListedBytes;
}

int64_t SumPiece::RawBytes() const {
  const auto size = static_cast<int64_t>(bytes.size());
  return header()->raw_bytes == 0 ? size : kHeaderBytes + header()->raw_bytes + ListedBytes();
}

bool SumPiece::Encode(WireFormat format, const uint64_t* seed, SumPiece* to) const {
  const int64_t listed_bytes = ListedBytes();
  // The values end with zeros if segments are listed, to align these.
  const int64_t raw_bytes = static_cast<int64_t>(bytes.size()) - kHeaderBytes - listed_bytes;
  if (raw_bytes == 0) return false;
  const int64_t count = FloatsIn(raw_bytes);
  const int64_t encoded_bytes = RoundUp(WireBytes(format, count), kListedBytes);
  to->Begin(*header(), encoded_bytes + listed_bytes);
  to->header()->raw_bytes = raw_bytes;
  to->header()->wire = format;
  const auto* const from = reinterpret_cast<const float*>(values());
  const bool fits = seed == nullptr ? EncodeNearest(format, from, count, to->values())
                                    : EncodeAtRandom(format, from, count, *seed, to->values());
  if (!fits) return false;
  char* const list = to->values() + encoded_bytes;
  std::memset(to->values() + WireBytes(format, count), 0,
              static_cast<size_t>(encoded_bytes - WireBytes(format, count)));
  std::memcpy(list, values() + raw_bytes, static_cast<size_t>(listed_bytes));
  return true;
}

bool SumPiece::Decode(const SegmentGrid& grid, SumPiece* to) const {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size < kHeaderBytes || header()->magic != PieceHeader::kMagic) return false;
  const PieceHeader& start = *header();
  const int64_t most = grid.piece_bytes() + kListedBytes;
  if (!IsWireFormat(static_cast<int32_t>(start.wire)) || start.raw_bytes <= 0 ||
      start.raw_bytes > most || start.listed > most / kListedBytes) {
    return false;
  }
  const int64_t listed_bytes = ListedBytes();
  const int64_t count = FloatsIn(start.raw_bytes);
  const int64_t encoded_bytes = RoundUp(WireBytes(start.wire, count), kListedBytes);
  if (size != kHeaderBytes + encoded_bytes + listed_bytes) return false;
  to->Begin(start, start.raw_bytes + listed_bytes);
  multiverso::Decode(start.wire, values(), count, reinterpret_cast<float*>(to->values()));
  std::memcpy(to->values() + start.raw_bytes, values() + encoded_bytes,
              static_cast<size_t>(listed_bytes));
  to->header()->raw_bytes = 0;
  to->header()->wire = WireFormat::kFloat32;
  return true;
}

PieceWriter::PieceWriter(const SegmentGrid& grid, SumPiece* piece, const PieceHeader& start,
                         int64_t end, bool is_whole)
    : grid_(grid),
      piece_(piece),
      is_whole_(is_whole),
      end_(is_whole ? std::min(end, grid.EndOfPiece(start.first)) : end) {
  piece_->Begin(start, is_whole ? grid.Bytes(start.first, end_) : 0);
}

bool PieceWriter::Begin(int64_t segment, int64_t terms) {
  const auto bytes = static_cast<int64_t>(size_ + listed_.size() * kListedBytes);
  if (!listed_.empty() && bytes + grid_.Bytes(segment, segment + 1) > grid_.piece_bytes()) {
    return false;
  }
  listed_.push_back(ListedSegment{static_cast<uint64_t>(segment), static_cast<uint64_t>(terms)});
  return true;
}

char* PieceWriter::Append(int64_t count) {
  const size_t at = size_;
  size_ += static_cast<size_t>(count * grid_.element_bytes());
  if (!is_whole_) piece_->bytes.resize(size_);
  return piece_->bytes.data() + at;
}

void PieceWriter::End(int64_t end) {
  piece_->header()->end = end;
  if (is_whole_) return;
  std::string& bytes = piece_->bytes;
  bytes.resize(static_cast<size_t>(RoundUp(static_cast<int64_t>(size_), kListedBytes)));
  bytes.append(reinterpret_cast<const char*>(listed_.data()), listed_.size() * kListedBytes);
  piece_->header()->listed = static_cast<int64_t>(listed_.size());
}

}  // namespace multiverso
