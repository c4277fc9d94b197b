#include "sum/pairwise_sum.h"

#include <algorithm>

namespace multiverso {
namespace {

int HighestBit(int number) {
  int bit = 0;
  while ((number >> (bit + 1)) != 0) ++bit;
  return bit;
}

void AppendSubtrees(const std::vector<bool>& is_in, int first, int length,
                    std::vector<WorkerRange>* ranges) {
  const auto begin = is_in.begin() + std::min(first, static_cast<int>(is_in.size()));
  const auto end = is_in.begin() + std::min(first + length, static_cast<int>(is_in.size()));
  if (std::find(begin, end, true) == end) return;
  if (std::find(begin, end, false) == end) {
    ranges->push_back(WorkerRange{first, static_cast<int>(end - is_in.begin())});
    return;
  }
  AppendSubtrees(is_in, first, length / 2, ranges);
  AppendSubtrees(is_in, first + length / 2, length / 2, ranges);
}

}  // namespace

std::vector<WorkerRange> SubtreesOf(const std::vector<bool>& is_in) {
  std::vector<WorkerRange> ranges;
  AppendSubtrees(is_in, 0, 2 << HighestBit(static_cast<int>(is_in.size())), &ranges);
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
