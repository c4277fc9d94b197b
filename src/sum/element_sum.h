// ElementSum: combines a block of elements of several arrays into elements of the same type.
//
// float16 and bfloat16 are combined in float32, and the result is rounded once. They are converted
// here, in the first-level cache, so that twice as many of them fit in scratch memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sum/pairwise_sum.h"
#include "sum/reduction.h"

namespace multiverso {

// One thread at a time uses an object.
class ElementSum {
 public:
  // For arrays of up to `workers` workers, and blocks of up to `most` elements.
  ElementSum(const Reduction& reduction, int workers, int64_t most)
      : reduction_(reduction),
        at_a_time_(std::max(std::min(kBytesAtATime / reduction.value_bytes(), most), int64_t{1})),
        sum_(reduction, workers, at_a_time_),
        values_(reduction.combines_elements() ? 0 : static_cast<size_t>(at_a_time_ * workers)) {}

  // Returns the largest number of elements of a block.
  int64_t at_a_time() const { return at_a_time_; }
  // Sets `count` elements of `out` to the results for those of the terms, whose values are
  // elements. `out` may be one of the terms.
  void Store(const std::vector<PairwiseSum::Term>& terms, int64_t count, char* out) {
    const bool is_converted = !reduction_.combines_elements();
    if (is_converted) Convert(terms, count);
    const char* const result = sum_.Of(is_converted ? converted_ : terms, count);
    reduction_.Store(result, static_cast<int64_t>(terms.size()), count, out);
  }

 private:
  // A result of this size stays in the first-level cache until it has been copied.
  static constexpr int64_t kBytesAtATime = int64_t{8} << 10;

  void Convert(const std::vector<PairwiseSum::Term>& terms, int64_t count) {
    converted_ = terms;
    for (size_t i = 0; i < terms.size(); ++i) {
      char* const to = reinterpret_cast<char*>(values_.data()) + i * block_bytes();
      reduction_.Load(terms[i].values, count, to);
      converted_[i].values = to;
    }
  }
  size_t block_bytes() const { return static_cast<size_t>(at_a_time_) * sizeof(float); }

  Reduction reduction_;
  int64_t at_a_time_;
  PairwiseSum sum_;
  // A block of each term, if its elements must be converted, and the terms with these blocks.
  std::vector<float> values_;
  std::vector<PairwiseSum::Term> converted_;
};

}  // namespace multiverso
