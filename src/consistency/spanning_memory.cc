#include "consistency/spanning_memory.h"

#include "base/checked.h"

namespace multiverso {
namespace {

int64_t WordsAt(int workers) { return RoundUp(WorkerClocks::BytesFor(workers), kPage); }
int64_t CopyAt(int workers) { return WordsAt(workers) + kPage; }
int64_t StagingAt(const StagedShape& shape, int workers) {
  return CopyAt(workers) + RoundUp(shape.layout.bytes(), kPage);
}

}  // namespace

bool SpanningMemory::BytesFor(const StagedShape& shape, int workers, int workers_here,
                              int64_t* bytes) {
  int64_t staging = 0;
  if (!Staging::BytesFor(shape, workers_here, &staging)) return false;
  *bytes = StagingAt(shape, workers) + staging;
  return true;
}

SpanningMemory::SpanningMemory(const StagedShape& shape, char* base, const WorkerClocks& clocks)
    : words_(reinterpret_cast<SpanningWords*>(base + WordsAt(clocks.workers()))),
      copy_(base + CopyAt(clocks.workers())),
      staging_(base + StagingAt(shape, clocks.workers()), shape,
               static_cast<int>(clocks.here().size())),
      local_indices_(static_cast<size_t>(clocks.workers()), -1) {
  for (size_t i = 0; i < clocks.here().size(); ++i) {
    local_indices_[static_cast<size_t>(clocks.here()[i])] = static_cast<int>(i);
  }
}

}  // namespace multiverso
