#include "checkpoint/manifest_file.h"

#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>

#include "base/text.h"

namespace multiverso {
namespace {

constexpr char kStepSeparator[] = "-step-";

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

std::string ManifestPath(const std::string& path) { return StrCat(path, "/", kManifestName); }

Result<Manifest> ReadManifest(FileSystem* files, const std::string& path, int64_t* bytes) {
  MV_ASSIGN_OR_RETURN(auto file, files->Open(ManifestPath(path)));
  const int64_t size = file->bytes();
  if (bytes != nullptr) *bytes = size;
  if (size > kMaxHeaderBytes) {
    return CorruptionFailure(file->path(), 0,
                             StrCat("expected a manifest, received ", size, " bytes"));
  }
  std::string content(static_cast<size_t>(size), '\0');
  MV_RETURN_IF_NOT_OK(file->Read(0, content.data(), size));
  Result<Manifest> manifest = DecodeManifest(content, file->path());
  CheckpointName name;
  std::string parent;
  if (!manifest.ok() || !SplitPath(path, &parent, &name)) return manifest;
  const CheckpointName saved{manifest->number, manifest->step};
  if (saved.text() == name.text()) return manifest;
  // A load takes the last checkpoint by its name, so a folder with the name of a later checkpoint
  // would bring an older state.
  return CorruptionFailure(
      file->path(), kNumberOffset,
      StrCat("expected ", name.text(), ", as its folder is named, received ", saved.text(),
             "; give the folder that name, or one that is no checkpoint's"));
}

std::string PathOfBase(const std::string& path, const SavedBase& base) {
  const std::string name = CheckpointName{base.number, base.step}.text();
  CheckpointName own;
  std::string parent;
  // A path such as "." does not say in which folder the checkpoint is.
  return SplitPath(path, &parent, &own) ? parent + name : StrCat(path, "/../", name);
}

Result<Manifest> ReadBaseManifest(FileSystem* files, const std::string& path,
                                  const Manifest& increment, int64_t* bytes) {
  const std::string base_path = PathOfBase(path, *increment.base);
  Result<Manifest> base = ReadManifest(files, base_path, bytes);
  if (!base.ok()) {
    const FileFault* const fault = base.status().file();
    if (fault == nullptr || fault->error_number != ENOENT) return base.status();
    return CorruptionFailure(ManifestPath(base_path), 0,
                             StrCat("the file is missing, and ", path, " is an increment on it"));
  }
  bool fits = base->id == increment.base->id && base->number == increment.base->number &&
              base->tables.size() == increment.tables.size();
  for (size_t i = 0; fits && i < base->tables.size(); ++i) {
    fits = increment.tables[i].HasRowsOf(base->tables[i]);
  }
  if (fits) return base;
  return CorruptionFailure(
      ManifestPath(base_path), kIdOffset,
      StrCat("expected the checkpoint on which ", path, " is built, received another one"));
}

}  // namespace multiverso
