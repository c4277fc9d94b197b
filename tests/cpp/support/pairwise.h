// A model of the sum over workers (sum/pairwise_sum.h).
#pragma once

#include <optional>
#include <vector>

namespace multiverso::testing {

// Returns S(a, b) of the workers' terms, some of which may be missing.
template <class T>
std::optional<T> PairwiseModel(const std::vector<std::optional<T>>& terms, size_t a, size_t b) {
  if (b == a + 1) return terms[a];
  size_t m = 1;
  while (2 * m < b - a) m *= 2;
  const auto left = PairwiseModel(terms, a, a + m);
  const auto right = PairwiseModel(terms, a + m, b);
  if (!left || !right) return left ? left : right;
  return *left + *right;
}

template <class T>
std::optional<T> PairwiseModel(const std::vector<std::optional<T>>& terms) {
  return PairwiseModel(terms, 0, terms.size());
}

}  // namespace multiverso::testing
