// ChainSum: adds the contributions of a node's workers in a round to the partial sum from the
// previous nodes. At the last node each element is the sum over all workers in worker order,
// however the workers are distributed over nodes. The first term is copied, because a sum that
// starts at 0 would turn -0 into 0.
#ifndef MULTIVERSO_CONSISTENCY_CHAIN_SUM_H_
#define MULTIVERSO_CONSISTENCY_CHAIN_SUM_H_

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "consistency/chain_piece.h"
#include "consistency/round_sum.h"

namespace multiverso {

// The delta of one worker in a round.
struct Contribution {
  bool is_rows = false;
  const char* values = nullptr;      // of the whole table, or of the listed rows
  const int64_t* row_ids = nullptr;  // ascending
  int64_t count = 0;                 // the number of row ids
};

// One thread at a time uses a sum. While every worker adds to the whole table, pieces have values
// for all of their segments. From the first node on where a worker adds rows, pieces list their
// segments, since each segment may then be the sum of a different number of deltas.
class ChainSum {
 public:
  ChainSum(const SegmentGrid& grid, DType dtype) : grid_(grid), dtype_(dtype) {}

  // Sets the contributions of this node, in worker order. The caller then passes the pieces of the
  // round in their order.
  void Begin(std::vector<Contribution> contributions);

  // Returns whether the sum of the received piece and the contributions fits into that piece.
  bool CanAddTo(const ChainPiece& piece) const;
  void AddTo(ChainPiece* piece) const;
  // Makes a piece of the contributions and of `received`, which may be null. The result begins with
  // segment `first` and ends at or before `end`, where `received` ends. The caller passes
  // `received` again until the result ends at `end` too.
  void Make(const ChainPiece* received, int64_t first, int64_t end, ChainPiece* out);

 private:
  // Reads a source of values segment by segment.
  class Source {
   public:
    Source(const SegmentGrid& grid, const Contribution& contribution);
    Source(const SegmentGrid& grid, const ChainPiece& piece);

    bool is_of_rows() const { return row_ids_ != nullptr; }
    int64_t segment() const;  // returns kNone at the end
    const char* values() const { return values_; }
    int64_t terms() const { return listed_ == nullptr ? terms_ : listed_[index_].terms; }
    void Step();

   private:
    const SegmentGrid* grid_;
    const int64_t* row_ids_ = nullptr;       // of a source of rows
    const ListedSegment* listed_ = nullptr;  // of a piece that lists its segments
    int64_t index_ = 0;   // of the row or listed segment; otherwise the segment itself
    int64_t count_ = 0;   // the value of index_ at the end
    int64_t part_ = 0;    // the current part of a row
    const char* values_;  // the values of the current segment
    int64_t terms_ = 1;
  };

  void MakeWhole(int64_t first, int64_t end, ChainPiece* out) const;
  void MakeListed(int64_t end, ChainPiece* out);
  void AddValues(char* sum, const char* values, int64_t elements) const;

  SegmentGrid grid_;
  DType dtype_;
  bool has_rows_ = false;
  std::vector<Contribution> contributions_;
  std::vector<Source> sources_;  // a received piece with further segments, then the contributions
  bool is_continued_ = false;    // whether sources_ begins with the received piece
  std::vector<Source> scan_;     // copies of sources_ that list the segments of a piece
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_CHAIN_SUM_H_
