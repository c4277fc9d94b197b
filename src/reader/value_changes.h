// Finds which values of a copy of a table differ from those of another copy, bit by bit, for a
// program that sends only the differences.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace multiverso {

// Places in a block need two bytes.
constexpr int64_t kChangesBlock = 65536;

// Compares `count` elements of 2, 4 or 8 bytes, and copies those of `now` that differ to `before`.
// Writes for each block of kChangesBlock elements how many differ to `counts`; and for all blocks
// together, one after the other, the places in their blocks to `places` and the new values to
// `values`, which have room for `count` elements each. Returns how many differ.
Result<int64_t> FindChanges(const void* now, void* before, int64_t element_bytes, int64_t count,
                            uint32_t* counts, uint16_t* places, void* values);

}  // namespace multiverso
