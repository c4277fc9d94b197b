// ElementSum: combines the elements of several arrays, block by block, into elements of the same
// type.
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

  // Sets `count` elements of `out` to the results for those of the terms, whose values are
  // elements. `out` may be one of the terms. Calls done(first, count) after each block.
  template <class Done>
  void Store(std::vector<PairwiseSum::Term> terms, int64_t count, char* out, Done done) {
    const bool is_converted = !reduction_.combines_elements();
    for (int64_t at = 0; at < count; at += at_a_time_) {
      const int64_t part = std::min(at_a_time_, count - at);
      if (is_converted) Convert(terms, part);
      const char* const result = sum_.Of(is_converted ? converted_ : terms, part);
      reduction_.Store(result, static_cast<int64_t>(terms.size()), part, out);
      done(at, part);
      const int64_t bytes = part * reduction_.element_bytes();
      out += bytes;
      for (PairwiseSum::Term& term : terms) term.values += bytes;
    }
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
