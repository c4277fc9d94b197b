// Copies sections of tables to memory with several threads, since one thread alone cannot use the
// full memory bandwidth.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/format.h"
#include "saves/negotiation.h"

namespace multiverso {

// Returns the offset of each section in the copy, and then the bytes of the whole copy. Sections
// are aligned to cache lines.
std::vector<int64_t> SnapshotOffsets(const std::vector<Section>& sections);
// Returns the number of threads that each of `ranks` ranks of a node may use.
int SnapshotThreads(int ranks);
// The caller ensures that the tables do not change meanwhile.
Status CopySnapshot(const Tables& tables, const std::vector<Section>& sections, char* to,
                    int threads, const WaitLimit& limit);

}  // namespace multiverso
