// ChainSum: adds the contributions of a node's workers in a round to the partial sum from the
// previous nodes. In the end each element is the sum over all workers in worker order, however the
// workers are distributed over nodes. The first term is copied, because a sum that starts at 0
// would turn -0 into 0.
#ifndef MULTIVERSO_CONSISTENCY_CHAIN_SUM_H_
#define MULTIVERSO_CONSISTENCY_CHAIN_SUM_H_

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "consistency/chain_piece.h"
#include "consistency/round_sum.h"

namespace multiverso {

// Used by one thread at a time. While every worker adds to the whole table, pieces have values for
// all of their segments. From the first worker on that names rows, pieces list their segments,
// since each segment may then be the sum of a different number of deltas.
class ChainSum {
 public:
  ChainSum(const SegmentGrid& grid, DType dtype) : grid_(grid), dtype_(dtype) {}

  // Sets the contributions of this node, in worker order. Pieces are then passed in their order.
  void Begin(std::vector<Contribution> contributions);

  // Whether the sum of the received piece and the contributions fits into the received piece.
  bool CanAddTo(const ChainPiece& piece) const;
  void AddTo(ChainPiece* piece) const;
  // Makes the piece that begins with segment `first` and ends at or before `end`, from the received
  // piece (or nothing, if `came` is null) and the contributions. The received piece ends at `end`
  // and is passed again until the result ends there too.
  void Make(const ChainPiece* came, int64_t first, int64_t end, ChainPiece* out);

 private:
  // Reads a source of values segment by segment.
  class Source {
   public:
    Source(const SegmentGrid& grid, const Contribution& contribution);
    Source(const SegmentGrid& grid, const ChainPiece& piece);

    bool is_of_rows() const { return row_ids_ != nullptr; }
    int64_t segment() const;  // kNone at the end
    const char* values() const { return values_; }
    int64_t terms() const { return listed_ == nullptr ? terms_ : listed_[index_].terms; }
    void Step();

   private:
    const SegmentGrid* grid_;
    const int64_t* row_ids_ = nullptr;       // row ids, for a source of rows
    const ListedSegment* listed_ = nullptr;  // or listed segments
    int64_t index_ = 0;   // the index; for a source of all segments, also the segment
    int64_t count_ = 0;   // the end of the index
    int64_t part_ = 0;    // part of a row
    const char* values_;  // values of the segment
    int64_t terms_ = 1;
  };

  void MakeWhole(int64_t first, int64_t end, ChainPiece* out) const;
  void MakeListed(int64_t end, ChainPiece* out);
  void AddValues(char* sum, const char* values, int64_t elements) const;

  SegmentGrid grid_;
  DType dtype_;
  bool has_rows_ = false;
  std::vector<Contribution> contributions_;
  std::vector<Source> sources_;  // the received piece, if it has more, and the contributions
  bool came_goes_on_ = false;
  std::vector<Source> ahead_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_CHAIN_SUM_H_
