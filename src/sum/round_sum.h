// RoundSum: the sum of the deltas of a round, which may be of rows or of the whole table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "numbers/updater.h"
#include "sum/delta_source.h"
#include "sum/pairwise_sum.h"
#include "sum/reduction.h"
#include "sum/segment_grid.h"

namespace multiverso {

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
    summands_.reserve(static_cast<size_t>(workers));
  }

  const SegmentGrid& grid() const { return grid_; }

  // Sums the sources, which are in worker order, over the segments `first` to `end` - 1. Listed
  // segments before `first` must have been stepped past. Calls begin(segment, num_deltas) before
  // each listed segment, and then use(element, count, values, num_deltas) for at most
  // kElementsAtATime elements at a time. If every source is whole, only use is called. If begin
  // returns false, stops before that segment. Returns where the sum has ended.
  template <class Begin, class Use>
  int64_t Sum(std::vector<DeltaSource>* sources, int64_t first, int64_t end, Begin begin, Use use);
  // Sums sources that are all whole, except for the last step: use(element, count, a, b) receives
  // the last two summands. `b` is null if there is one source. Returns false as soon as use does.
  template <class Use>
  bool SumAllButLastStep(const std::vector<DeltaSource>& sources, int64_t first, int64_t end,
                         Use use);

 private:
  // Sets summands_ to the values of whole sources from segment `first` on, and returns how many
  // deltas these contain.
  int64_t TakeSummands(const std::vector<DeltaSource>& sources, int64_t first);
  // Sums the summands over `count` elements. `element` is the table's number of the first of them.
  template <class Use>
  void SumElements(int64_t element, int64_t count, int64_t num_deltas, Use use);

  SegmentGrid grid_;
  int64_t at_a_time_;
  PairwiseSum sum_;
  std::vector<PairwiseSum::Term> summands_;
};

template <class Use>
void RoundSum::SumElements(int64_t element, int64_t count, int64_t num_deltas, Use use) {
  for (int64_t done = 0; done < count; done += at_a_time_) {
    const int64_t part = std::min(at_a_time_, count - done);
    use(element + done, part, sum_.Of(summands_, part), num_deltas);
    for (PairwiseSum::Term& summand : summands_) summand.values += part * grid_.element_bytes();
  }
}

inline int64_t RoundSum::TakeSummands(const std::vector<DeltaSource>& sources, int64_t first) {
  int64_t num_deltas = 0;
  summands_.clear();
  for (const DeltaSource& source : sources) {
    num_deltas += source.terms();
    summands_.push_back({source.worker(), source.ValuesOf(grid_, first)});
  }
  return num_deltas;
}

template <class Use>
bool RoundSum::SumAllButLastStep(const std::vector<DeltaSource>& sources, int64_t first,
                                 int64_t end, Use use) {
  TakeSummands(sources, first);
  const int64_t end_element = grid_.Element(end);
  for (int64_t at = grid_.Element(first); at < end_element; at += at_a_time_) {
    const int64_t part = std::min(at_a_time_, end_element - at);
    const PairwiseSum::Halves halves = sum_.HalvesOf(summands_, part);
    if (!use(at, part, halves.left, halves.right)) return false;
    for (PairwiseSum::Term& summand : summands_) summand.values += part * grid_.element_bytes();
  }
  return true;
}

template <class Begin, class Use>
int64_t RoundSum::Sum(std::vector<DeltaSource>* sources, int64_t first, int64_t end, Begin begin,
                      Use use) {
  if (AllAreWhole(*sources)) {
    const int64_t num_deltas = TakeSummands(*sources, first);
    SumElements(grid_.Element(first), grid_.Elements(first, end), num_deltas, use);
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
    int64_t num_deltas = 0;
    summands_.clear();
    for (const DeltaSource& source : *sources) {
      if (!source.is_whole() && source.Next(grid_) != segment) continue;
      num_deltas += source.terms();
      summands_.push_back({source.worker(), source.ValuesOf(grid_, segment)});
    }
    if (!begin(segment, num_deltas)) return segment;
    SumElements(grid_.Element(segment), grid_.Elements(segment, segment + 1), num_deltas, use);
    for (DeltaSource& source : *sources) {
      if (!source.is_whole() && source.Next(grid_) == segment) source.Step(grid_);
    }
  }
}

}  // namespace multiverso
