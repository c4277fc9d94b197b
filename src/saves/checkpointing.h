// Checkpointing: what a session keeps between its saves: the background save in progress, the
// memory from which it writes, and what the tables have contained at the last saves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "checkpoint/file_system.h"
#include "checkpoint/save_job.h"
#include "group/rank_context.h"
#include "memory/segment.h"

namespace multiverso {

// A save of this session, whose files an incremental save into the same folder can use.
struct LastSave {
  std::string folder;
  uint64_t id = 0;
  CheckpointName name;
  std::vector<int64_t> tables;    // ids
  std::vector<int64_t> versions;  // of the tables on this node, for Table::ListChangesHere
};

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
  LastSave saving;     // what the job saves
  // The job of the last complete save, which may still free the space of old checkpoints.
  std::unique_ptr<SaveJob> finished;
  // The last complete saves into some folders, the latest last.
  std::vector<LastSave> last_saves;
  bool is_half_loaded = false;  // whether the last load ended before the tables had its rows
};

// Returns the last save into a folder, or null.
const LastSave* LastSaveInto(const Checkpointing& state, const std::string& folder);

// Returns the extra time that a call gets for `bytes` on a disk: enough for a very slow one.
std::chrono::milliseconds TimeForDisk(int64_t bytes);

// What the master sends to the other ranks with its vote.
struct MasterMessage {
  int64_t values[4] = {};
};

// Makes an allgather as Group::Agree. Errors about a rank that did not come say "rank 1 died before
// it had" done the `task`. `folder`, which all ranks know, is cut off the beginning of texts and
// paths, since a long path would not fit.
Status ExchangeVotes(const Checkpointing& state, CollectiveKind kind, const std::string& folder,
                     const Status& mine, const std::vector<int>& ranks, const std::string& task,
                     const WaitLimit& limit, const MasterMessage& from_master = MasterMessage());

// Waits, with all ranks, until the save in progress is complete, and returns its failure. Returns
// ok if no save is in progress.
Status EndSave(Checkpointing* state, const WaitLimit& limit);

}  // namespace multiverso
