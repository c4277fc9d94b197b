// Checkpointing: what a session keeps from one save to the next: the save that is under way behind
// the training, and the memory that it writes from.
#ifndef MULTIVERSO_SESSION_CHECKPOINTING_H_
#define MULTIVERSO_SESSION_CHECKPOINTING_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/operation.h"
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
  RankContext* group = nullptr;
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

// SaveEnd: waits until the save under way is complete, with all ranks, whose failure it returns.
// Ok if there is none.
class SaveEnd {
 public:
  explicit SaveEnd(Checkpointing* state) : state_(state) {}

  Status Step(const WaitLimit& limit);

 private:
  enum class Phase { kWrite, kMeetWritten, kCommit, kMeetCommitted, kDone };

  Group* circle() const { return state_->group->world(); }
  Status CommitFailure() const;
  // The job has ended, with this.
  Status End(const Status& status);

  Checkpointing* state_;
  Phase phase_ = Phase::kWrite;
};

// The call that is nothing else.
class SaveWait final : public Operation {
 public:
  SaveWait(Checkpointing* state, std::unique_ptr<Operation> fence, Instant deadline)
      : Operation(deadline), fence_(std::move(fence)), state_(state), end_(state) {}

  Status Step(const WaitLimit& limit) override;
  void Cancel(const std::string& reason) override;

 private:
  std::unique_ptr<Operation> fence_;
  Checkpointing* state_;
  SaveEnd end_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_SESSION_CHECKPOINTING_H_
