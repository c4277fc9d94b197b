// ChainPiece: a part of a sum over the nodes, as it travels along the chain of their leaders.
//
// A sum is divided into segments. A segment is a row, or a part of a row that is longer than a
// piece. A piece covers consecutive segments, and has values either for all of its segments or only
// for segments that the piece lists. The pieces of a sum arrive in order and without gaps.
#ifndef MULTIVERSO_CONSISTENCY_CHAIN_PIECE_H_
#define MULTIVERSO_CONSISTENCY_CHAIN_PIECE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "consistency/round_sum.h"

namespace multiverso {

// The start of a message, before the listed segments and the values. The header travels as bytes.
struct PieceHeader {
  uint32_t magic = 0;
  uint32_t is_listed = 0;  // if 0, the piece has values for every segment
  uint32_t is_end = 0;     // no sums of `round` or later follow, and the piece has no values
  uint32_t terms = 0;      // number of terms in each value, unless is_listed
  int64_t table = 0;
  uint64_t round = 0;
  int64_t first = 0;  // the piece covers segments first to end - 1
  int64_t end = 0;
  int64_t count = 0;  // number of listed segments
};

// A header, a list and values in one block of memory, so that a piece travels as one message.
class ChainPiece {
 public:
  // Returns the bytes of a piece whose list and values take at most `piece_bytes`. A piece of one
  // listed segment may exceed `piece_bytes` by its list, which has room of its own.
  static int64_t RoomFor(int64_t piece_bytes) {
    return static_cast<int64_t>(sizeof(PieceHeader) + sizeof(ListedSegment)) + piece_bytes;
  }
  explicit ChainPiece(int64_t room) : bytes_(static_cast<size_t>(room)) {
    *header() = PieceHeader();
  }

  PieceHeader* header() { return reinterpret_cast<PieceHeader*>(bytes_.data()); }
  const PieceHeader* header() const { return reinterpret_cast<const PieceHeader*>(bytes_.data()); }
  ListedSegment* listed() {
    return reinterpret_cast<ListedSegment*>(bytes_.data() + sizeof(PieceHeader));
  }
  const ListedSegment* listed() const {
    return reinterpret_cast<const ListedSegment*>(bytes_.data() + sizeof(PieceHeader));
  }
  // The values follow the listed segments, whose number the header states.
  char* values() { return reinterpret_cast<char*>(listed() + header()->count); }
  const char* values() const { return reinterpret_cast<const char*>(listed() + header()->count); }

  char* data() { return bytes_.data(); }
  int64_t room() const { return static_cast<int64_t>(bytes_.size()); }
  // The size of the message.
  int64_t bytes = 0;

 private:
  std::vector<char> bytes_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_CHAIN_PIECE_H_
