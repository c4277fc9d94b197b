#include "checkpoint/manifest_file.h"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>

#include "base/text.h"

namespace multiverso {
namespace {

constexpr char kStepSeparator[] = "-step-";
// How much memory decoding a manifest takes, in sizes of the file.
constexpr int64_t kManifestCopies = 3;

bool ParseNumber(const std::string& text, int64_t* number) {
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *number);
  return parsed.ec == std::errc() && parsed.ptr == end && *number >= 0 && text[0] != '-';
}

// Splits the path of a checkpoint into its folder, which ends with a slash or is empty, and its
// name. Returns false if the path does not end with the name of a checkpoint.
bool SplitPath(const std::string& path, std::string* parent, CheckpointName* name) {
  const size_t end = path.find_last_not_of('/') + 1;
  const size_t begin = path.substr(0, end).find_last_of('/') + 1;
  *parent = path.substr(0, begin);
  return CheckpointName::Parse(path.substr(begin, end - begin), name);
}

// Refuses an increment of 0.2.0, whose rows are in several folders.
Status CheckNoChain(FileSystem* files, const std::string& checkpoint, const std::string& manifest) {
  if (FormatOf(manifest) != kChainFormatVersion) return Status::Ok();
  std::string parent;
  CheckpointName name;
  if (!SplitPath(checkpoint, &parent, &name)) parent = StrCat(checkpoint, "/../");
  std::string newest = "no complete checkpoint is beside it";
  int64_t number = -1;
  const auto entries = files->List(parent.empty() ? "." : parent);
  for (const std::string& entry : entries.ok() ? entries.value() : std::vector<std::string>()) {
    if (!CheckpointName::Parse(entry, &name) || name.number <= number) continue;
    std::string prefix(kFormatBytes, '\0');
    const auto file = files->Open(ManifestPath(parent + entry));
    if (!file.ok() || !file.value()->Read(0, prefix.data(), kFormatBytes).ok()) continue;
    const uint32_t version = FormatOf(prefix);
    if (version == 0 || version == kChainFormatVersion) continue;
    number = name.number;
    newest = StrCat("load ", parent, entry, ", the newest complete checkpoint");
  }
  return CorruptionFailure(ManifestPath(checkpoint), kFormatOffset,
                           StrCat("expected a complete checkpoint, received an increment of "
                                  "Multiverso 0.2.0, which this version does not read; ",
                                  newest));
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

std::string ManifestPath(const std::string& checkpoint) {
  return StrCat(checkpoint, "/", kManifestName);
}

Result<Manifest> ReadManifest(FileSystem* files, const std::string& checkpoint, int64_t* bytes) {
  MV_ASSIGN_OR_RETURN(auto file, files->Open(ManifestPath(checkpoint)));
  const int64_t size = file->bytes();
  if (bytes != nullptr) *bytes = size;
  if (size > kMaxHeaderBytes) {
    return CorruptionFailure(file->path(), 0,
                             StrCat("expected a manifest, received ", size, " bytes"));
  }
  std::string content(static_cast<size_t>(std::min(size, kFormatBytes)), '\0');
  MV_RETURN_IF_NOT_OK(file->Read(0, content.data(), static_cast<int64_t>(content.size())));
  if (FormatOf(content) == 0) return DecodeManifest(content, file->path());
  MV_RETURN_IF_NOT_OK(CheckRoomFor(kManifestCopies * size, file->path()));
  content.resize(static_cast<size_t>(size));
  MV_RETURN_IF_NOT_OK(file->Read(0, content.data(), size));
  MV_RETURN_IF_NOT_OK(CheckNoChain(files, checkpoint, content));
  Result<Manifest> manifest = DecodeManifest(content, file->path());
  CheckpointName name;
  std::string parent;
  if (!manifest.ok() || !SplitPath(checkpoint, &parent, &name)) return manifest;
  const CheckpointName saved{manifest->number, manifest->step};
  if (saved.text() == name.text()) return manifest;
  // A load takes the last checkpoint by its name, so a folder with the name of a later checkpoint
  // would bring an older state.
  return CorruptionFailure(
      file->path(), kNumberOffset,
      StrCat("expected ", name.text(), ", as its folder is named, received ", saved.text(),
             "; give the folder that name, or one that is no checkpoint's"));
}

}  // namespace multiverso
