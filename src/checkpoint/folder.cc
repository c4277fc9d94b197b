#include "checkpoint/folder.h"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>

#include "base/text.h"
#include "checkpoint/reader.h"

namespace multiverso {
namespace {

constexpr char kSaving[] = ".saving-";
constexpr char kRemoving[] = ".removing-";
constexpr char kStepSeparator[] = "-step-";

bool BeginsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

bool ParseNumber(const std::string& text, int64_t* number) {
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *number);
  return parsed.ec == std::errc() && parsed.ptr == end && *number >= 0 && text[0] != '-';
}

}  // namespace

std::string CheckpointName::text() const {
  char out[64];
  std::snprintf(out, sizeof(out), "%06" PRId64 "%s%" PRId64, number, kStepSeparator, step);
  return out;
}

bool CheckpointName::Parse(const std::string& text, CheckpointName* name) {
  const size_t separator = text.find(kStepSeparator);
  if (separator == std::string::npos || separator == 0) return false;
  return ParseNumber(text.substr(0, separator), &name->number) &&
         ParseNumber(text.substr(separator + sizeof(kStepSeparator) - 1), &name->step) &&
         name->text() == text;
}

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
  const auto manifest = files_->Look(StrCat(path_, "/", kManifestName));
  if (!manifest.ok()) return manifest.status();
  if (manifest.value() != EntryKind::kNone) return path_;
  const auto names = List();
  if (!names.ok()) return names.status();
  return names.value().empty() ? std::string() : PathOf(names.value().back());
}

Result<std::string> CheckpointFolder::Begin(int64_t step, uint64_t id, CheckpointName* name) {
  MV_RETURN_IF_NOT_OK(files_->MakeFolders(path_));
  const auto entries = files_->List(path_);
  if (!entries.ok()) return entries.status();
  for (const std::string& entry : entries.value()) {
    if (BeginsWith(entry, kSaving) || BeginsWith(entry, kRemoving)) {
      MV_RETURN_IF_NOT_OK(RemoveAll(StrCat(path_, "/", entry)));
    }
  }
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

Status CheckpointFolder::Prune(int64_t keep) {
  const auto names = List();
  if (!names.ok()) return names.status();
  const auto count = static_cast<int64_t>(names.value().size());
  for (int64_t i = 0; i < count - keep; ++i) {
    const CheckpointName& name = names.value()[static_cast<size_t>(i)];
    // The rename ensures that readers never find a partly removed checkpoint.
    const std::string removing = StrCat(path_, "/", kRemoving, name.text());
    MV_RETURN_IF_NOT_OK(files_->Rename(PathOf(name), removing));
    MV_RETURN_IF_NOT_OK(RemoveAll(removing));
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
