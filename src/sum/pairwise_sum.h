// PairwiseSum: the order in which the deltas of workers are added, which makes a sum depend only on
// the deltas and the workers' numbers, and neither on nodes nor on who adds.
//
//   S(a, b) = the delta of worker a             if b = a + 1
//   S(a, b) = S(a, a + m) + S(a + m, b)         m = the largest power of two below b - a
//
// A worker without a delta is no term: S of no terms is nothing, and x + nothing is x. In S(0, n)
// every subtree covers a range of workers that begins at a multiple of a power of two and has that
// length, except that the last range may be cut short. So the numbers of two adjacent terms tell
// where they meet: at the highest bit in which the numbers differ. A term may itself be the sum
// over such a range; its number is then that of the range's first worker.
//
// Another operation in place of the addition, such as a maximum, has the same order.
//
// The error of a pairwise sum grows with the logarithm of the number of terms (N. Higham, "The
// accuracy of floating point summation", SIAM J. Sci. Comput. 14(4), 1993).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sum/reduction.h"

namespace multiverso {

// The workers first to end - 1.
struct WorkerRange {
  int first = 0;
  int end = 0;

  bool Contains(int worker) const { return worker >= first && worker < end; }
};

// Returns the largest ranges whose sums are subtrees of S(0, total) and whose workers are all among
// `workers`, which are in ascending order.
std::vector<WorkerRange> SubtreesOf(const std::vector<int>& workers, int total);

// One thread at a time uses an object, because its sums share memory.
class PairwiseSum {
 public:
  struct Term {
    int worker;
    const char* values;
  };
  // Two arrays whose sum is a result. `right` is null if `left` is the result.
  struct Halves {
    const char* left;
    const char* right;
  };

  PairwiseSum(const Reduction& reduction, int workers, int64_t largest_count);

  // Returns the two summands of Of(terms, count), which the caller may add in a loop of its own.
  Halves HalvesOf(const std::vector<Term>& terms, int64_t count);
  // Returns the sum of `count` values of each term. There is at least one term, and the terms are
  // in worker order. The result is valid until the next call, or is the only term.
  const char* Of(const std::vector<Term>& terms, int64_t count);

 private:
  Halves Split(const Term* terms, size_t size, int64_t count, char* sum);
  const char* Add(const Term* terms, size_t size, int64_t count, char* sum);

  Reduction reduction_;
  int64_t block_bytes_;
  std::vector<char> sums_;  // one block per level of the tree
};

}  // namespace multiverso
