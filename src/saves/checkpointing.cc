#include "saves/checkpointing.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/folder.h"

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

// The character that replaces the folder in a text. No error's text contains it.
constexpr char kFolderMark = '\x01';

std::string WithoutFolder(const std::string& text, const std::string& folder) {
  if (folder.empty() || text.compare(0, folder.size(), folder) != 0) return text;
  return kFolderMark + text.substr(folder.size());
}

std::string WithFolder(std::string text, const std::string& folder) {
  const size_t mark = text.find(kFolderMark);
  return mark == std::string::npos ? text : text.replace(mark, 1, folder);
}

// Returns the failure with `change` made to its text and to the path of its file.
template <class Change>
Status Changed(const Status& failure, const Change& change) {
  FileFault fault = failure.file() == nullptr ? FileFault() : *failure.file();
  fault.path = change(fault.path);
  const Status changed(failure.code(), change(failure.text()), std::move(fault));
  return failure.peer() == nullptr ? changed : changed.About(*failure.peer());
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

Status ExchangeVotes(const Checkpointing& state, CollectiveKind kind, const std::string& folder,
                     const Status& mine, const std::vector<int>& ranks, const std::string& task,
                     const WaitLimit& limit, const MasterMessage& from_master) {
  Group* const world = state.context->world();
  const auto shorten = [&](const std::string& text) { return WithoutFolder(text, folder); };
  const auto lengthen = [&](const std::string& text) { return WithFolder(text, folder); };
  const Status status =
      world->Agree(kind, mine.ok() ? mine : Changed(mine, shorten), ranks,
                   StrCat(" before it had ", task), limit, &from_master, sizeof(from_master));
  return status.ok() || !world->IsCompleted() ? status : Changed(status, lengthen);
}

Status EndSave(Checkpointing* state, const WaitLimit& limit) {
  SaveJob* const job = state->job.get();
  if (job == nullptr) return Status::Ok();
  const auto vote = [&](const Status& mine) {
    return ExchangeVotes(*state, CollectiveKind::kSaveWait, job->folder(), mine, {state->committer},
                         StrCat("said that it had completed ", job->saving()), limit);
  };
  Status status = vote(job->AwaitWritten(limit));
  if (status.ok()) {
    job->NoteAllWritten();
    status = vote(job->commits() ? job->AwaitCommitted(limit) : Status::Ok());
  }
  // Without a common result, all ranks keep the job.
  if (!status.ok() && !state->context->world()->IsCompleted()) return status;
  const std::string saving = job->saving();
  const std::string folder = job->folder();
  const bool removes_folder = job->commits() && !status.ok();
  if (status.ok() && job->commits()) {
    // A program may have moved it to its archive, so this is no error.
    const auto kind = state->files->KindOf(job->path());
    if (kind.ok() && kind.value() == EntryKind::kNone) {
      LogWarning(StrCat(job->path(), ": the checkpoint has been removed or moved since its save"));
    }
  }
  if (status.ok()) {
    const int first_here = state->context->world()->participants_here().front();
    if (first_here == state->context->members().rank()) {
      state->context->memory()->RecordCheckpoint(job->path());
    }
    Remember(state, std::move(state->saving));
    state->finished = std::move(state->job);
  }
  state->job.reset();  // waits for the job's thread, which writes to the folder
  if (removes_folder) CheckpointFolder(state->files, folder).Abandon(saving);
  return status;
}

}  // namespace multiverso
