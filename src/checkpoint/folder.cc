#include "checkpoint/folder.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <filesystem>

#include "base/checked.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/data_file.h"

namespace multiverso {
namespace {

constexpr char kSaving[] = ".saving-";
constexpr char kRemoving[] = ".removing-";

bool BeginsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// Returns the mark with the checkpoint's id at the end of the name of a folder that is written.
std::string MarkOf(uint64_t id) {
  char mark[32];
  std::snprintf(mark, sizeof(mark), "-%016" PRIx64, id);
  return mark;
}

// Returns whether `name` begins as the name of a leftover does.
bool LooksLikeLeftover(const std::string& name) {
  return BeginsWith(name, kSaving) || BeginsWith(name, kRemoving);
}

// Returns whether a save could have made a folder of this name.
bool IsNameOfLeftover(const std::string& name) {
  CheckpointName parsed;
  if (BeginsWith(name, kRemoving)) {
    return CheckpointName::Parse(name.substr(sizeof(kRemoving) - 1), &parsed);
  }
  const size_t mark = name.rfind('-');
  uint64_t id = 0;
  return BeginsWith(name, kSaving) && std::sscanf(name.c_str() + mark + 1, "%" SCNx64, &id) == 1 &&
         MarkOf(id) == name.substr(mark) &&
         CheckpointName::Parse(name.substr(sizeof(kSaving) - 1, mark - (sizeof(kSaving) - 1)),
                               &parsed);
}

// Returns the folder that has the entry `path`.
std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::u8path(path).parent_path().u8string();
  return parent.empty() ? "." : parent;
}

// Returns whether a folder could not be synced because this user may not read or change it. So no
// save has made anything in it.
bool IsOfOthers(const Status& failure) {
  const int error_number = failure.file() == nullptr ? 0 : failure.file()->error_number;
  return error_number == EACCES || error_number == EPERM || error_number == EROFS;
}

// Returns whether a save writes a file of this name to the folder of a checkpoint.
bool IsFileOfCheckpoint(const std::string& name) {
  const std::string partial = PartialName("");
  const bool is_partial = name.size() > partial.size() &&
                          name.compare(name.size() - partial.size(), partial.size(), partial) == 0;
  return name == kManifestName ||
         IsDataFileName(is_partial ? name.substr(0, name.size() - partial.size()) : name);
}

}  // namespace

Result<std::vector<CheckpointName>> CheckpointFolder::List() const {
  MV_ASSIGN_OR_RETURN(const auto entries, files_->List(path_));
  std::vector<CheckpointName> names;
  for (const std::string& entry : entries) {
    CheckpointName name;
    if (CheckpointName::Parse(entry, &name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end(),
            [](const CheckpointName& a, const CheckpointName& b) { return a.number < b.number; });
  return names;
}

Result<std::string> CheckpointFolder::Resolve() const {
  MV_ASSIGN_OR_RETURN(const auto kind, files_->KindOf(path_));
  if (kind == EntryKind::kNone) return std::string();
  if (kind != EntryKind::kFolder) {
    std::string prefix;
    MV_ASSIGN_OR_RETURN(const auto file, files_->Open(path_));
    prefix.resize(static_cast<size_t>(std::min<int64_t>(file->bytes(), 16)));
    MV_RETURN_IF_NOT_OK(file->Read(0, prefix.data(), static_cast<int64_t>(prefix.size())));
    MV_RETURN_IF_NOT_OK(DecodeManifest(prefix, path_).status());
    return CorruptionFailure(path_, 0, "expected the folder of a checkpoint, received a file");
  }
  MV_ASSIGN_OR_RETURN(const auto manifest, files_->KindOf(ManifestPath(path_)));
  if (manifest != EntryKind::kNone) return path_;
  MV_ASSIGN_OR_RETURN(const auto names, List());
  return names.empty() ? std::string() : PathOf(names.back());
}

Status CheckpointFolder::NotFound(const char* advice) const {
  const auto entries = files_->List(path_);
  const char* found = "no folder";
  if (entries.ok()) found = entries.value().empty() ? "an empty folder" : "a folder without one";
  return Status(Code::kCheckpointIo,
                StrCat(path_, ": expected a checkpoint, received ", found, advice),
                FileFault{path_, ENOENT, 0});
}

Status CheckpointFolder::Make() const {
  std::vector<std::string> missing;  // the deepest first
  std::string path = path_;
  for (;;) {
    const Result<EntryKind> kind = files_->KindOf(path);
    if (!kind.ok()) return files_->EnsureFolders(path_);  // says what is in the way
    if (kind.value() != EntryKind::kNone || ParentOf(path) == path) break;
    missing.push_back(path);
    path = ParentOf(path);
  }
  // A save that was killed, or in which this sync failed, may have just made the deepest folder.
  const Status synced = files_->SyncFolder(ParentOf(path));
  if (!synced.ok() && !IsOfOthers(synced)) return synced;
  if (missing.empty()) return files_->EnsureFolders(path_);
  for (; !missing.empty(); missing.pop_back()) {
    const Status made = files_->CreateFolder(missing.back());
    // Another process may have made it meanwhile.
    const bool exists = !made.ok() && made.file() != nullptr && made.file()->error_number == EEXIST;
    if (!made.ok() && !exists) return made;
    MV_RETURN_IF_NOT_OK(files_->SyncFolder(ParentOf(missing.back())));
  }
  return Status::Ok();
}

Result<std::string> CheckpointFolder::Begin(int64_t step, uint64_t id, CheckpointName* name) {
  MV_RETURN_IF_NOT_OK(Make());
  MV_ASSIGN_OR_RETURN(const auto entries, files_->List(path_));
  std::vector<std::string> leftovers;
  for (const std::string& entry : entries) {
    if (LooksLikeLeftover(entry)) leftovers.push_back(entry);
  }
  RemoveLeftovers(leftovers);
  MV_ASSIGN_OR_RETURN(const auto names, List());
  *name = CheckpointName{1, std::max<int64_t>(step, 0)};
  if (!names.empty()) {
    const CheckpointName& last = names.back();
    if (!CheckedAdd(last.number, 1, &name->number) ||
        (step < 0 && !CheckedAdd(last.step, 1, &name->step))) {
      return Status(Code::kCheckpointIo,
                    StrCat(PathOf(last),
                           ": expected a number and a step after which another one "
                           "can follow; rename this folder, or save with a step into another"),
                    FileFault{PathOf(last), EOVERFLOW, 0});
    }
  }
  std::string partial_folder = SavingPath(*name, id);
  MV_RETURN_IF_NOT_OK(files_->CreateFolder(partial_folder));
  return partial_folder;
}

std::string CheckpointFolder::SavingPath(const CheckpointName& name, uint64_t id) const {
  return StrCat(path_, "/", kSaving, name.text(), MarkOf(id));
}

Status CheckpointFolder::Commit(const std::string& partial_folder, const CheckpointName& name) {
  MV_RETURN_IF_NOT_OK(files_->SyncFolder(partial_folder));
  MV_RETURN_IF_NOT_OK(files_->Rename(partial_folder, PathOf(name)));
  return files_->SyncFolder(path_);
}

void CheckpointFolder::Abandon(const std::string& partial_folder) {
  (void)files_->RemoveFolder(partial_folder, &IsFileOfCheckpoint);
}

Status CheckpointFolder::Retire(int64_t keep, std::vector<std::string>* retired) {
  MV_ASSIGN_OR_RETURN(const std::vector<CheckpointName> names, List());
  const int64_t surplus = static_cast<int64_t>(names.size()) - keep;
  for (int64_t i = 0; i < surplus; ++i) {
    const CheckpointName& name = names[static_cast<size_t>(i)];
    const std::string removing = kRemoving + name.text();
    const Status renamed = files_->Rename(PathOf(name), StrCat(path_, "/", removing));
    if (renamed.ok()) {
      retired->push_back(removing);
    } else {
      LogWarning(StrCat("an old checkpoint stays: ", renamed.text()));
    }
  }
  return Status::Ok();
}

void CheckpointFolder::RemoveLeftovers(const std::vector<std::string>& names) {
  if (names.empty()) return;
  // Otherwise a power failure could bring back the name of a checkpoint without its files.
  const Status synced = files_->SyncFolder(path_);
  if (!synced.ok()) {
    LogWarning(StrCat("what saves have left stays: ", synced.text()));
    return;
  }
  for (const std::string& name : names) {
    const std::string path = StrCat(path_, "/", name);
    const Status removed =
        IsNameOfLeftover(name)
            ? files_->RemoveFolder(path, &IsFileOfCheckpoint)
            : Status(Code::kCheckpointIo, StrCat(path, " is not the name of a folder of a save"));
    if (!removed.ok())
      LogWarning(StrCat("what looks like a leftover of a save stays: ", removed.text()));
  }
}

}  // namespace multiverso
