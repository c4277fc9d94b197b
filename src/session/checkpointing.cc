#include "session/checkpointing.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "checkpoint/folder.h"
#include "session/vote.h"

namespace multiverso {
namespace {

constexpr int64_t kSlowestDisk = 20'000;  // bytes per millisecond

}  // namespace

std::chrono::milliseconds TimeForDisk(int64_t bytes) {
  return std::chrono::milliseconds(bytes / kSlowestDisk);
}

Status SaveEnd::Step(const WaitLimit& limit) {
  SaveJob* const job = state_->job.get();
  if (job == nullptr) return Status::Ok();
  switch (phase_) {
    case Phase::kWrite: {
      const Status written = job->AwaitWritten(limit);
      if (written.pending()) return written;
      CastVote(circle(), CollectiveKind::kSaveWait, written, job->folder());
      phase_ = Phase::kMeetWritten;
      [[fallthrough]];
    }
    case Phase::kMeetWritten: {
      MV_RETURN_IF_NOT_OK(circle()->Wait(limit));
      const Status failure = CommitFailure();
      if (!failure.ok()) return End(failure);
      job->NoteAllWritten();
      phase_ = Phase::kCommit;
      [[fallthrough]];
    }
    case Phase::kCommit: {
      const Status committed = job->commits() ? job->AwaitCommitted(limit) : Status::Ok();
      if (committed.pending()) return committed;
      CastVote(circle(), CollectiveKind::kSaveWait, committed, job->folder());
      phase_ = Phase::kMeetCommitted;
      [[fallthrough]];
    }
    case Phase::kMeetCommitted:
      MV_RETURN_IF_NOT_OK(circle()->Wait(limit));
      return End(CommitFailure());
    case Phase::kDone:
      break;
  }
  return Status::Ok();
}

Status SaveEnd::CommitFailure() const {
  MV_RETURN_IF_NOT_OK(CheckAllCame(*state_->group, *circle(), {state_->committer},
                                   StrCat("said that it had completed ", state_->job->saving())));
  return FirstFailure(*circle(), state_->job->folder());
}

Status SaveEnd::End(const Status& status) {
  phase_ = Phase::kDone;
  const std::string saving = state_->job->saving();
  const std::string folder = state_->job->folder();
  const bool cleans = state_->job->commits() && !status.ok();
  const std::vector<int> present = circle()->participants();
  const auto first_here = std::find_if(present.begin(), present.end(), [&](int rank) {
    return state_->group->members().is_local(rank);
  });
  if (status.ok() && *first_here == state_->group->members().rank())
    state_->group->memory()->RecordCheckpoint(state_->job->path());
  state_->job.reset();  // its thread has ended
  if (cleans) CheckpointFolder(state_->files, folder).Abandon(saving);
  return status;
}

Status SaveWait::Step(const WaitLimit& limit) {
  if (fence_ != nullptr) MV_RETURN_IF_NOT_OK(fence_->Step(limit));
  fence_.reset();
  return end_.Step(limit);
}

void SaveWait::Cancel(const std::string& reason) {
  state_->group->state()->Abort(Status(Code::kAborted, reason));
}

}  // namespace multiverso
