#include "session/checkpointing.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "checkpoint/folder.h"
#include "session/checkpoint_votes.h"

namespace multiverso {
namespace {

constexpr int64_t kSlowDiskBytesPerMs = 20'000;  // 20 MB/s
// The most folders of which a session remembers its last save.
constexpr size_t kMaxFolders = 8;

void Remember(Checkpointing* state, LastSave&& save) {
  std::vector<LastSave>& saves = state->last_saves;
  const LastSave* const replaced = LastSaveInto(*state, save.folder);
  if (replaced != nullptr) {
    saves.erase(saves.begin() + (replaced - saves.data()));
  } else if (saves.size() == kMaxFolders) {
    saves.erase(saves.begin());
  }
  saves.push_back(std::move(save));
}

Status ExchangeVotes(const Checkpointing& state, const Status& mine, const WaitLimit& limit) {
  const SaveJob& job = *state.job;
  return ExchangeVotes(state.context->world(), CollectiveKind::kSaveWait, mine, job.folder(),
                       {state.committer},
                       StrCat(" before it had said that it had completed ", job.saving()), limit);
}

// Returns whether this rank is the first of its node among the participants of the last collective.
bool IsFirstHere(RankContext* context) {
  const std::vector<int> participants = context->world()->participants();
  return *std::find_if(participants.begin(), participants.end(), [&](int rank) {
    return context->members().is_local(rank);
  }) == context->members().rank();
}

}  // namespace

const LastSave* LastSaveInto(const Checkpointing& state, const std::string& folder) {
  const auto found = std::find_if(state.last_saves.begin(), state.last_saves.end(),
                                  [&](const LastSave& save) { return save.folder == folder; });
  return found == state.last_saves.end() ? nullptr : &*found;
}

std::chrono::milliseconds TimeForDisk(int64_t bytes) {
  return std::chrono::milliseconds(bytes / kSlowDiskBytesPerMs);
}

Status EndSave(Checkpointing* state, const WaitLimit& limit) {
  SaveJob* const job = state->job.get();
  if (job == nullptr) return Status::Ok();
  Status status = ExchangeVotes(*state, job->AwaitWritten(limit), limit);
  if (status.ok()) {
    job->NoteAllWritten();
    status =
        ExchangeVotes(*state, job->commits() ? job->AwaitCommitted(limit) : Status::Ok(), limit);
  }
  // Without a common result, all ranks keep the job.
  if (!status.ok() && !state->context->world()->IsCompleted()) return status;
  const std::string saving = job->saving();
  const std::string folder = job->folder();
  const bool removes_folder = job->commits() && !status.ok();
  if (status.ok() && IsFirstHere(state->context))
    state->context->memory()->RecordCheckpoint(job->path());
  if (status.ok()) {
    Remember(state, std::move(state->saving));
    state->finished = std::move(state->job);
  }
  state->job.reset();  // waits for the job's thread, which writes to the folder
  if (removes_folder) CheckpointFolder(state->files, folder).Abandon(saving);
  return status;
}

}  // namespace multiverso
