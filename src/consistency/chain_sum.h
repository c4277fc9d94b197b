// ChainSum: adds what the workers of a node contribute to a round onto what came from the nodes
// before it, so that in the end each element is the sum over all workers in worker order, whatever
// the split of the workers over nodes. The first term is taken as it is: a sum that began at 0
// would turn -0 into 0.
#ifndef MULTIVERSO_CONSISTENCY_CHAIN_SUM_H_
#define MULTIVERSO_CONSISTENCY_CHAIN_SUM_H_

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "consistency/chain_piece.h"
#include "consistency/round_sum.h"

namespace multiverso {

// Used by one thread at a time. As long as every worker adds to the whole table, pieces have values
// for all their segments; from the first worker on that names rows they list them, since then each
// segment may be the sum of another number of deltas.
class ChainSum {
 public:
  ChainSum(const SegmentGrid& grid, DType dtype) : grid_(grid), dtype_(dtype) {}

  // The contributions of this node, in worker order. Pieces are then passed in their order.
  void Begin(std::vector<Contribution> contributions);

  // Whether the sum of what came and the contributions has room where the former is.
  bool CanAddTo(const ChainPiece& piece) const;
  void AddTo(ChainPiece* piece) const;
  // Makes the piece that begins with segment `first` and ends with `end` or before: of what came,
  // or of nothing if that is null, and the contributions. What came ends with `end`, and is passed
  // again until what is made does too.
  void Make(const ChainPiece* came, int64_t first, int64_t end, ChainPiece* out);

 private:
  // A reader of something with values for segments. It stands at one of them.
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
    const int64_t* row_ids_ = nullptr;       // either of rows,
    const ListedSegment* listed_ = nullptr;  // or of such,
    int64_t index_ = 0;                      // or of all: then this is the segment
    int64_t count_ = 0;                      // where the index ends
    int64_t part_ = 0;                       // of a row
    const char* values_;                     // of the segment
    int64_t terms_ = 1;
  };

  void MakeWhole(int64_t first, int64_t end, ChainPiece* out) const;
  void MakeListed(int64_t end, ChainPiece* out);
  void AddValues(char* sum, const char* values, int64_t elements) const;

  SegmentGrid grid_;
  DType dtype_;
  bool has_rows_ = false;
  std::vector<Contribution> contributions_;
  std::vector<Source> sources_;  // what came, if it goes on, and the contributions
  bool came_goes_on_ = false;
  std::vector<Source> ahead_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_CONSISTENCY_CHAIN_SUM_H_
