// Checkpointing: what a session keeps from one save to the next: the save that is under way behind
// the training, and the memory that it writes from.
#ifndef MULTIVERSO_SESSION_CHECKPOINTING_H_
#define MULTIVERSO_SESSION_CHECKPOINTING_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/file_system.h"
#include "checkpoint/save_job.h"
#include "group/node_group.h"
#include "memory/segment.h"
#include "table/table.h"

namespace multiverso {

// Used by the thread that makes the session's collective calls.
struct Checkpointing {
  FileSystem* files = nullptr;
  NodeGroup* group = nullptr;
  // Copies of this rank's rows. Kept, since memory that has been used before is copied to at twice
  // the speed. Outlives the job.
  Segment copy;
  // Null unless a save is under way: on all ranks or on none.
  std::unique_ptr<SaveJob> job;
  int committer = -1;  // the rank that completes it
};

// More than a call on tables takes: the time to write or read `bytes` at a speed that no disk falls
// short of.
std::chrono::milliseconds TimeForDisk(int64_t bytes);

// Waits, with all ranks, until the save under way is complete, and returns its failure. Ok if there
// is none under way.
Status EndSave(Checkpointing* state, const WaitLimit& limit);

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_CHECKPOINTING_H_
