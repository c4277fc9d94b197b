#include "reader/find_segments.h"

namespace multiverso {

// Segments have no names, and the open files of other processes cannot be listed.
std::vector<int64_t> OtherProcesses() { return {}; }

std::vector<std::string> SegmentsOf(int64_t /*pid*/, uint64_t /*magic*/, int64_t /*offset*/) {
  return {};
}

}  // namespace multiverso
