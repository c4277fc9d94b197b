#include "consistency/round_memory.h"

#include "base/checked.h"

namespace multiverso {
namespace {

int64_t WordsAt(int workers) { return RoundUp(WorkerClocks::BytesFor(workers), kPage); }
int64_t CopyAt(int workers) { return WordsAt(workers) + RoundUp(int64_t{64} * workers, kPage); }
int64_t StagingAt(const StagedShape& shape, int workers, bool spans_nodes) {
  return CopyAt(workers) + (spans_nodes ? RoundUp(shape.layout.bytes(), kPage) : 0);
}

}  // namespace

bool RoundMemory::BytesFor(const StagedShape& shape, const Membership& members, int64_t* bytes) {
  int64_t staging = 0;
  if (!Staging::BytesFor(shape, members.num_workers_here(), &staging)) return false;
  *bytes = StagingAt(shape, members.num_workers(), members.spans_nodes()) + staging;
  return true;
}

RoundMemory::RoundMemory(const StagedShape& shape, char* base, const WorkerClocks& clocks)
    : words_(base + WordsAt(clocks.workers())),
      copy_(base + CopyAt(clocks.workers())),
      staging_(base + StagingAt(shape, clocks.workers(), clocks.SpansNodes()), shape,
               static_cast<int>(clocks.here().size())),
      local_indices_(static_cast<size_t>(clocks.workers()), -1) {
  for (size_t i = 0; i < clocks.here().size(); ++i) {
    local_indices_[static_cast<size_t>(clocks.here()[i])] = static_cast<int>(i);
  }
}

}  // namespace multiverso
