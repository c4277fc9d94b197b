// SumPiece: a part of a sum between nodes, in a message.
#pragma once

#include <cstdint>
#include <string>

#include "numbers/wire_format.h"
#include "sum/delta_source.h"

namespace multiverso {

// The start of a message. The values follow, and then the listed segments, if there are any. The
// header travels as bytes.
struct PieceHeader {
  static constexpr uint32_t kMagic = 0x4d565350;
  static constexpr int32_t kResult = -1;

  uint32_t magic = kMagic;
  int32_t sender = 0;
  int64_t table = 0;  // or the number of an aggregate
  uint64_t round = 0;
  int32_t part = 0;
  int32_t worker = kResult;  // the first worker of a partial sum, or kResult
  // In a partial sum, the first round whose result is copied by the sender's node or one behind it.
  uint64_t copied_from = 0;
  int64_t first = 0;  // the piece covers segments first to end - 1
  int64_t end = 0;
  int64_t listed = -1;  // number of listed segments, or -1 if the piece has values for all segments
  int64_t terms = 0;    // number of workers' deltas in each value, unless segments are listed
  int64_t raw_bytes = 0;  // bytes of the values before they were encoded, or 0 if they are not
  WireFormat wire = WireFormat::kFloat32;
  int32_t is_difference = 0;  // whether the values of a result are to be added to the copied values
};

struct SumPiece {
  // The size of pieces of values: large enough for full speed, and small enough to stay in the
  // receiver's cache.
  static constexpr int64_t kValueBytes = int64_t{512} << 10;

  std::string bytes;  // the message

  PieceHeader* header() { return reinterpret_cast<PieceHeader*>(bytes.data()); }
  const PieceHeader* header() const { return reinterpret_cast<const PieceHeader*>(bytes.data()); }
  char* values() { return bytes.data() + sizeof(PieceHeader); }
  const char* values() const { return bytes.data() + sizeof(PieceHeader); }
  const ListedSegment* segments() const {
    return reinterpret_cast<const ListedSegment*>(bytes.data() + bytes.size()) - header()->listed;
  }

  // Begins a piece with room for `value_bytes` of values.
  void Begin(const PieceHeader& start, int64_t value_bytes);
  // Returns whether the message is a complete piece of a sum over that grid.
  bool IsValid(const SegmentGrid& grid) const;
  // Returns the values, which must be those of a partial sum.
  DeltaSource Source() const;
  // Calls use(element, count, values) for the values of each range of segments.
  template <class Use>
  void ForEachRange(const SegmentGrid& grid, Use use);
  // Returns the bytes that the message has if its values are not encoded.
  int64_t RawBytes() const;

  // Writes this piece with encoded values to `to`. Returns false if the format cannot represent
  // them, or if there are none, because Decode accepts no piece without values. With a seed, rounds
  // at random (EncodeAtRandom), otherwise to the nearest value.
  bool Encode(WireFormat format, const uint64_t* seed, SumPiece* to) const;
  // Writes this piece with decoded values to `to`. Returns false if no node can have encoded it.
  bool Decode(const SegmentGrid& grid, SumPiece* to) const;

 private:
  int64_t ListedBytes() const;
};

template <class Use>
void SumPiece::ForEachRange(const SegmentGrid& grid, Use use) {
  const PieceHeader& start = *header();
  if (start.listed < 0) {
    return use(grid.Element(start.first), grid.Elements(start.first, start.end), values());
  }
  char* next = values();
  for (int64_t i = 0; i < start.listed; ++i) {
    const int64_t segment = segments()[i].segment();
    use(grid.Element(segment), grid.Elements(segment, segment + 1), next);
    next += grid.Bytes(segment, segment + 1);
  }
}

// Writes the values of a piece: those of all segments, or those of segments that it then lists.
class PieceWriter {
 public:
  // Begins a piece of segments before `end`.
  PieceWriter(const SegmentGrid& grid, SumPiece* piece, const PieceHeader& start, int64_t end,
              bool is_whole);

  // Returns the end of the segments that the piece may cover.
  int64_t end() const { return end_; }
  // Begins the next listed segment. Returns false if the piece has no room for it.
  bool Begin(int64_t segment, int64_t terms);
  // Returns room for the next `count` elements, valid until the next call.
  char* Append(int64_t count);
  // Ends the piece, which covers the segments before `end`.
  void End(int64_t end);

 private:
  const SegmentGrid& grid_;
  SumPiece* piece_;
  bool is_whole_;
  int64_t end_;
  size_t size_ = sizeof(PieceHeader);  // of the header and the values
  std::vector<ListedSegment> listed_;
};

}  // namespace multiverso
