// Checkpointing: what a session keeps between its saves: the background save in progress, and the
// memory from which it writes.
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

// Only the thread that makes the session's collective calls uses this state.
struct Checkpointing {
  FileSystem* files = nullptr;
  RankContext* context = nullptr;
  // The copy of this rank's rows from which a background save writes. The memory is kept for the
  // next save, since copying to memory that has been used before is twice as fast.
  Segment copy;
  // The save in progress, on all ranks or on none. The job reads the copy.
  std::unique_ptr<SaveJob> job;
  int committer = -1;  // the rank whose job commits the checkpoint
};

// Returns the extra time that a call gets for `bytes` on a disk: enough for a very slow one.
std::chrono::milliseconds TimeForDisk(int64_t bytes);

// Waits, with all ranks, until the save in progress is complete, and returns its failure. Returns
// ok if no save is in progress.
Status EndSave(Checkpointing* state, const WaitLimit& limit);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_CHECKPOINTING_H_
