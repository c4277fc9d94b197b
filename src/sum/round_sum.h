// RoundSum: the sum of the deltas of a round, which may be of rows or of the whole table.
#ifndef MULTIVERSO_SUM_ROUND_SUM_H_
#define MULTIVERSO_SUM_ROUND_SUM_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "shard/updater.h"
#include "sum/pairwise_sum.h"
#include "sum/reduction.h"
#include "sum/segment_grid.h"

namespace multiverso {

// A segment in a list, and the number of workers' deltas in the sum of its values.
struct ListedSegment {
  uint64_t number : 44;
  uint64_t terms : 20;

  int64_t at() const { return static_cast<int64_t>(number); }
};

// The delta of one worker in a round, or the sum over a range of workers. It has values for
// consecutive segments, or for the segments or rows that it lists. Reads them in ascending order.
class DeltaSource {
 public:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  // Values from segment `first` on, of `terms` workers from `worker` on.
  static DeltaSource Whole(int worker, const char* values, int64_t first = 0, int64_t terms = 1);
  // Values of the listed rows, in ascending order, of one worker.
  static DeltaSource Rows(int worker, const char* values, const int64_t* row_ids, int64_t count);
  // Values of the listed segments, in ascending order, of workers from `worker` on.
  static DeltaSource Segments(int worker, const char* values, const ListedSegment* listed,
                              int64_t count);

  int worker() const { return worker_; }
  bool is_whole() const { return count_ < 0; }
  // Returns the next listed segment, or kNone at the end.
  int64_t Next(const SegmentGrid& grid) const;
  // Skips to the first listed row at or after that row, for a source of rows.
  void SeekRow(const SegmentGrid& grid, int64_t row);
  // Steps past the listed segment Next().
  void Step(const SegmentGrid& grid);
  // Returns the values of the next listed segment, or of that segment for a source of all.
  const char* ValuesOf(const SegmentGrid& grid, int64_t segment) const {
    return is_whole() ? values_ + grid.Bytes(first_, segment) : values_;
  }
  int64_t terms() const {
    return listed_ == nullptr ? terms_ : static_cast<int64_t>(listed_[index_].terms);
  }

 private:
  int worker_ = 0;
  const char* values_ = nullptr;  // of segment first_, or of the next listed segment
  int64_t first_ = 0;
  int64_t terms_ = 1;
  const int64_t* row_ids_ = nullptr;
  const ListedSegment* listed_ = nullptr;
  int64_t count_ = -1;  // number of listed rows or segments, or -1
  int64_t index_ = 0;   // of the next one
  int64_t part_ = 0;    // the next part of the listed row
};

// One thread at a time uses an object, because its sums share memory.
class RoundSum {
 public:
  // The largest number of elements summed at a time, which are of whole rows if such rows fit.
  // Their sum stays in the first-level cache until it has been used.
  static constexpr int64_t kElementsAtATime = kMaxRowElements;

  RoundSum(const SegmentGrid& grid, const Reduction& reduction, int workers)
      : grid_(grid),
        at_a_time_(grid.WholeSegments(kElementsAtATime)),
        sum_(reduction, workers, kElementsAtATime) {
    terms_.reserve(static_cast<size_t>(workers));
  }

  const SegmentGrid& grid() const { return grid_; }

  // Sums the sources, which are in worker order, over the segments `first` to `end` - 1. Listed
  // segments before `first` must have been stepped past. Calls begin(segment, terms) before each
  // listed segment, and then use(element, count, values, terms) for at most kElementsAtATime
  // elements at a time. If every source is whole, only use is called. If begin returns false, stops
  // before that segment. Returns where the sum has ended.
  template <class Begin, class Use>
  int64_t Sum(std::vector<DeltaSource>* sources, int64_t first, int64_t end, Begin begin, Use use);
  // Sums sources that are all whole, except for the last step: use(element, count, a, b) receives
  // the last two summands. `b` is null if there is one source. Returns false as soon as use does.
  template <class Use>
  bool SumInHalves(const std::vector<DeltaSource>& sources, int64_t first, int64_t end, Use use);

 private:
  // Sets terms_ to the values of whole sources from segment `first` on. Returns the number of
  // deltas.
  int64_t TakeTerms(const std::vector<DeltaSource>& sources, int64_t first);
  // Sums terms_ over elements of which terms_ have the values.
  template <class Use>
  void SumElements(int64_t element, int64_t count, int64_t terms, Use use);

  SegmentGrid grid_;
  int64_t at_a_time_;
  PairwiseSum sum_;
  std::vector<PairwiseSum::Term> terms_;
};

inline bool AllAreWhole(const std::vector<DeltaSource>& sources) {
  return std::all_of(sources.begin(), sources.end(),
                     [](const DeltaSource& source) { return source.is_whole(); });
}

template <class Use>
void RoundSum::SumElements(int64_t element, int64_t count, int64_t terms, Use use) {
  for (int64_t done = 0; done < count; done += at_a_time_) {
    const int64_t part = std::min(at_a_time_, count - done);
    use(element + done, part, sum_.Of(terms_, part), terms);
    for (PairwiseSum::Term& term : terms_) term.values += part * grid_.element_bytes();
  }
}

inline int64_t RoundSum::TakeTerms(const std::vector<DeltaSource>& sources, int64_t first) {
  int64_t terms = 0;
  terms_.clear();
  for (const DeltaSource& source : sources) {
    terms += source.terms();
    terms_.push_back({source.worker(), source.ValuesOf(grid_, first)});
  }
  return terms;
}

template <class Use>
bool RoundSum::SumInHalves(const std::vector<DeltaSource>& sources, int64_t first, int64_t end,
                           Use use) {
  TakeTerms(sources, first);
  const int64_t end_element = grid_.Element(end);
  for (int64_t at = grid_.Element(first); at < end_element; at += at_a_time_) {
    const int64_t part = std::min(at_a_time_, end_element - at);
    const PairwiseSum::Halves halves = sum_.HalvesOf(terms_, part);
    if (!use(at, part, halves.left, halves.right)) return false;
    for (PairwiseSum::Term& term : terms_) term.values += part * grid_.element_bytes();
  }
  return true;
}

template <class Begin, class Use>
int64_t RoundSum::Sum(std::vector<DeltaSource>* sources, int64_t first, int64_t end, Begin begin,
                      Use use) {
  if (AllAreWhole(*sources)) {
    const int64_t terms = TakeTerms(*sources, first);
    SumElements(grid_.Element(first), grid_.Elements(first, end), terms, use);
    return end;
  }
  const bool is_any_whole =
      std::any_of(sources->begin(), sources->end(),
                  [](const DeltaSource& source) { return source.is_whole(); });
  for (int64_t segment = first;; ++segment) {
    if (!is_any_whole) {
      segment = DeltaSource::kNone;
      for (const DeltaSource& source : *sources) segment = std::min(segment, source.Next(grid_));
    }
    if (segment >= end) return end;
    int64_t terms = 0;
    terms_.clear();
    for (const DeltaSource& source : *sources) {
      if (!source.is_whole() && source.Next(grid_) != segment) continue;
      terms += source.terms();
      terms_.push_back({source.worker(), source.ValuesOf(grid_, segment)});
    }
    if (!begin(segment, terms)) return segment;
    SumElements(grid_.Element(segment), grid_.Elements(segment, segment + 1), terms, use);
    for (DeltaSource& source : *sources) {
      if (!source.is_whole() && source.Next(grid_) == segment) source.Step(grid_);
    }
  }
}

}  // namespace multiverso

#endif  // MULTIVERSO_SUM_ROUND_SUM_H_
