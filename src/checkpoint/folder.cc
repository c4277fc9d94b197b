#include "checkpoint/folder.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <set>

#include "base/text.h"

namespace multiverso {
namespace {

constexpr char kSaving[] = ".saving-";
constexpr char kRemoving[] = ".removing-";

bool BeginsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

Result<std::vector<CheckpointName>> CheckpointFolder::List() const {
  const auto entries = files_->List(path_);
  if (!entries.ok()) return entries.status();
  std::vector<CheckpointName> names;
  for (const std::string& entry : entries.value()) {
    CheckpointName name;
    if (CheckpointName::Parse(entry, &name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end(),
            [](const CheckpointName& a, const CheckpointName& b) { return a.number < b.number; });
  return names;
}

Result<std::string> CheckpointFolder::Resolve() const {
  const auto kind = files_->Look(path_);
  if (!kind.ok()) return kind.status();
  if (kind.value() == EntryKind::kNone) return std::string();
  if (kind.value() != EntryKind::kFolder) {
    std::string prefix;
    const auto file = files_->Open(path_);
    if (!file.ok()) return file.status();
    prefix.resize(static_cast<size_t>(std::min<int64_t>(file.value()->bytes(), 16)));
    MV_RETURN_IF_NOT_OK(file.value()->Read(0, prefix.data(), static_cast<int64_t>(prefix.size())));
    MV_RETURN_IF_NOT_OK(DecodeManifest(prefix, path_).status());
    return CorruptionFailure(path_, 0, "expected the folder of a checkpoint, received a file");
  }
  const auto manifest = files_->Look(ManifestPath(path_));
  if (!manifest.ok()) return manifest.status();
  if (manifest.value() != EntryKind::kNone) return path_;
  const auto names = List();
  if (!names.ok()) return names.status();
  return names.value().empty() ? std::string() : PathOf(names.value().back());
}

Status CheckpointFolder::NotFound() const {
  const auto entries = files_->List(path_);
  const char* found = "no folder";
  if (entries.ok()) found = entries.value().empty() ? "an empty folder" : "a folder without one";
  return Status(Code::kCheckpointIo,
                StrCat(path_, ": expected a checkpoint, received ", found,
                       "; with missing_ok, a load accepts that"),
                FileFault{path_, ENOENT, 0});
}

Result<std::string> CheckpointFolder::Begin(int64_t step, uint64_t id, CheckpointName* name) {
  MV_RETURN_IF_NOT_OK(files_->MakeFolders(path_));
  MV_RETURN_IF_NOT_OK(RemoveLeftovers({kSaving, kRemoving}));
  const auto names = List();
  if (!names.ok()) return names.status();
  *name = CheckpointName{1, std::max<int64_t>(step, 0)};
  if (!names.value().empty()) {
    name->number = names.value().back().number + 1;
    if (step < 0) name->step = names.value().back().step + 1;
  }
  const std::string saving = SavingPath(*name, id);
  MV_RETURN_IF_NOT_OK(files_->MakeFolder(saving));
  return saving;
}

std::string CheckpointFolder::SavingPath(const CheckpointName& name, uint64_t id) const {
  char mark[32];
  std::snprintf(mark, sizeof(mark), "-%016" PRIx64, id);
  return StrCat(path_, "/", kSaving, name.text(), mark);
}

Status CheckpointFolder::Commit(const std::string& saving, const CheckpointName& name) {
  MV_RETURN_IF_NOT_OK(files_->SyncFolder(saving));
  MV_RETURN_IF_NOT_OK(files_->Rename(saving, PathOf(name)));
  return files_->SyncFolder(path_);
}

void CheckpointFolder::Abandon(const std::string& saving) { (void)RemoveAll(saving); }

Status CheckpointFolder::Retire(int64_t keep) {
  const auto listed = List();
  if (!listed.ok()) return listed.status();
  const std::vector<CheckpointName>& names = listed.value();
  if (static_cast<int64_t>(names.size()) <= keep) return Status::Ok();
  const auto first_kept = names.end() - keep;
  std::set<int64_t> needed;  // the numbers of bases
  for (auto name = first_kept; name != names.end(); ++name) {
    std::string path = PathOf(*name);
    Result<Manifest> manifest = ReadManifest(files_, path);
    if (!manifest.ok()) return manifest.status();
    while (manifest->base.has_value() && needed.insert(manifest->base->number).second) {
      const std::string base_path = PathOfBase(path, *manifest->base);
      manifest = ReadBaseManifest(files_, path, Manifest(manifest.value()));
      if (!manifest.ok()) return manifest.status();
      path = base_path;
    }
  }
  // Increments are renamed before their bases, so that every checkpoint that is found is complete.
  for (auto end = first_kept; end != names.begin(); --end) {
    const CheckpointName& name = *(end - 1);
    if (needed.count(name.number) != 0) continue;
    MV_RETURN_IF_NOT_OK(files_->Rename(PathOf(name), StrCat(path_, "/", kRemoving, name.text())));
  }
  return Status::Ok();
}

Status CheckpointFolder::RemoveRetired() { return RemoveLeftovers({kRemoving}); }

Status CheckpointFolder::RemoveLeftovers(const std::vector<std::string>& prefixes) {
  const auto entries = files_->List(path_);
  if (!entries.ok()) return entries.status();
  for (const std::string& entry : entries.value()) {
    const bool is_leftover =
        std::any_of(prefixes.begin(), prefixes.end(),
                    [&](const std::string& prefix) { return BeginsWith(entry, prefix); });
    if (is_leftover) MV_RETURN_IF_NOT_OK(RemoveAll(StrCat(path_, "/", entry)));
  }
  return Status::Ok();
}

Status CheckpointFolder::RemoveAll(const std::string& path) {
  const auto entries = files_->List(path);
  if (!entries.ok()) return entries.status();
  for (const std::string& entry : entries.value()) {
    MV_RETURN_IF_NOT_OK(files_->Remove(StrCat(path, "/", entry)));
  }
  return files_->Remove(path);
}

}  // namespace multiverso
