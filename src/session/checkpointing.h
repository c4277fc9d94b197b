// Checkpointing: the state that a session keeps between saves: the background save in progress, and
// the memory from which the save writes.
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
  // Copies of this rank's rows. The copies outlive the job, which reads them. The memory is kept
  // for the next save, since copying to memory that has been used before is twice as fast.
  Segment copy;
  // The save in progress, on all ranks or on none.
  std::unique_ptr<SaveJob> job;
  int committer = -1;  // the rank that completes the save
};

// Returns the extra time that a call gets to write or read `bytes` on a very slow disk.
std::chrono::milliseconds TimeForDisk(int64_t bytes);

// Waits, with all ranks, until the save in progress is complete, and returns its failure. Returns
// ok if no save is in progress.
Status EndSave(Checkpointing* state, const WaitLimit& limit);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_CHECKPOINTING_H_
