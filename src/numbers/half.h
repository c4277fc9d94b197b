// Conversions between float32 and the 16-bit types in which a table can store its parameters.
//
// Arithmetic is in float32. Its results are rounded stochastically: up with a probability that is
// the distance to the number below, in units of the distance between both neighbours. So steps that
// are much smaller than that distance are not lost on average. The random bits are a function of an
// element's place in the table and of the number of its update, so that rounds are reproducible.
// They are hashes in counter mode: of each block of kRoundingBlock elements with Mix64, and within
// the block with Mix32.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace multiverso::half {

constexpr int64_t kRoundingBlock = 256;

// `dtype` is float16 or bfloat16. The arrays do not overlap.
void ToFloat(DType dtype, const uint16_t* from, int64_t count, float* to);
void RoundToNearest(DType dtype, const float* from, int64_t count, uint16_t* to);
// Rounds elements from element `first` of the table on, in their update number `step`.
void RoundStochastically(DType dtype, const float* from, int64_t count, int64_t first, int64_t step,
                         uint16_t* to);

}  // namespace multiverso::half
