// Checkpointing: the state that a session keeps between saves: the background save in progress and
// the memory that it writes from.
#ifndef MULTIVERSO_SESSION_CHECKPOINTING_H_
#define MULTIVERSO_SESSION_CHECKPOINTING_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/file_system.h"
#include "checkpoint/save_job.h"
#include "group/rank_context.h"
#include "memory/segment.h"
#include "table/table.h"

namespace multiverso {

// Used by the thread that makes the session's collective calls.
struct Checkpointing {
  FileSystem* files = nullptr;
  RankContext* context = nullptr;
  // Copies of this rank's rows. Kept for the next save, since copying to memory that has been used
  // before is twice as fast. Outlives the job.
  Segment copy;
  // The save in progress, on all ranks or on none.
  std::unique_ptr<SaveJob> job;
  int committer = -1;  // the rank that completes the save
};

// The extra time that a call gets for writing or reading `bytes`, at the speed of a very slow disk.
std::chrono::milliseconds TimeForDisk(int64_t bytes);

// Waits, with all ranks, until the save in progress is complete, and returns its failure. Ok
// without one.
Status EndSave(Checkpointing* state, const WaitLimit& limit);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_CHECKPOINTING_H_
