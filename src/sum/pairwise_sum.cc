#include "sum/pairwise_sum.h"

#include <algorithm>

namespace multiverso {
namespace {

int HighestBit(int number) {
  int bit = 0;
  while ((number >> (bit + 1)) != 0) ++bit;
  return bit;
}

// Appends the ranges for the workers begin to end - 1, which are among the `length` from `first`
// on.
void AppendSubtrees(const int* begin, const int* end, int first, int length, int total,
                    std::vector<WorkerRange>* ranges) {
  if (begin == end) return;
  const WorkerRange all{first, std::min(first + length, total)};
  if (end - begin == all.end - all.first) return ranges->push_back(all);
  const int half = length / 2;
  const int* const middle = std::lower_bound(begin, end, first + half);
  AppendSubtrees(begin, middle, first, half, total, ranges);
  AppendSubtrees(middle, end, first + half, half, total, ranges);
}

}  // namespace

std::vector<WorkerRange> SubtreesOf(const std::vector<int>& workers, int total) {
  std::vector<WorkerRange> ranges;
  AppendSubtrees(workers.data(), workers.data() + workers.size(), 0, 2 << HighestBit(total), total,
                 &ranges);
  return ranges;
}

PairwiseSum::PairwiseSum(const Reduction& reduction, int workers, int64_t largest_count)
    : reduction_(reduction),
      block_bytes_(largest_count * reduction.value_bytes()),
      sums_(static_cast<size_t>(block_bytes_ * (HighestBit(workers) + 1))) {}

const char* PairwiseSum::Of(const std::vector<Term>& terms, int64_t count) {
  return Add(terms.data(), terms.size(), count, sums_.data());
}

PairwiseSum::Halves PairwiseSum::HalvesOf(const std::vector<Term>& terms, int64_t count) {
  return Split(terms.data(), terms.size(), count, sums_.data());
}

PairwiseSum::Halves PairwiseSum::Split(const Term* terms, size_t size, int64_t count, char* sum) {
  if (size == 1) return Halves{terms[0].values, nullptr};
  const int half = 1 << HighestBit(terms[0].worker ^ terms[size - 1].worker);
  size_t left = 1;
  while ((terms[left].worker & half) == 0) ++left;
  return Halves{Add(terms, left, count, sum),
                Add(terms + left, size - left, count, sum + block_bytes_)};
}

const char* PairwiseSum::Add(const Term* terms, size_t size, int64_t count, char* sum) {
  const Halves halves = Split(terms, size, count, sum);
  if (halves.right == nullptr) return halves.left;
  reduction_.Combine(sum, halves.left, halves.right, count);
  return sum;
}

}  // namespace multiverso
