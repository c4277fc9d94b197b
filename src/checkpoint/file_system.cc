#include "checkpoint/file_system.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/descriptor.h"
#include "base/failpoint.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/disk.h"
#include "memory/limits.h"

namespace multiverso {
namespace {

namespace fs = std::filesystem;

// After so many bytes the system is told to start writing them, so that Sync has less to do.
constexpr int64_t kFlushInterval = int64_t{8} << 20;

// Paths are UTF-8 in this library, also on Windows.
fs::path PathOf(const std::string& path) { return fs::u8path(path); }

// Returns the failure to do `action`, unless `error` is none.
Status Check(const std::string& path, const char* action, const std::error_code& error) {
  return error ? IoFailure(path, action, error) : Status::Ok();
}

class LocalWritableFile final : public WritableFile {
 public:
  LocalWritableFile(std::string path, int file) : path_(std::move(path)), file_(file) {}
  ~LocalWritableFile() override { disk::Close(file_); }

  Status Write(const void* data, int64_t bytes) override {
    const char* next = static_cast<const char*>(data);
    if (MV_FAILPOINT("file.write")) return IoFailure(path_, "write", EIO, written_);
    while (bytes > 0) {
      const int64_t count = disk::WriteSome(file_, next, bytes);
      if (count < 0) return IoFailure(path_, "write", errno, written_);
      next += count;
      bytes -= count;
      written_ += count;
    }
    if (written_ - flushed_ >= kFlushInterval) {
      disk::BeginFlush(file_, flushed_, written_ - flushed_);
      flushed_ = written_;
    }
    return Status::Ok();
  }

  Status Sync() override {
    if (MV_FAILPOINT("file.sync")) return IoFailure(path_, "sync", EIO, written_);
    return disk::Flush(file_) ? Status::Ok() : IoFailure(path_, "sync", errno, written_);
  }

 private:
  std::string path_;
  int file_;
  int64_t written_ = 0;
  int64_t flushed_ = 0;  // bytes that the system has been told to write
};

class LocalReadableFile final : public ReadableFile {
 public:
  LocalReadableFile(std::string path, int file, int64_t bytes)
      : path_(std::move(path)), file_(file), bytes_(bytes) {}
  ~LocalReadableFile() override { disk::Close(file_); }

  const std::string& path() const override { return path_; }
  int64_t bytes() const override { return bytes_; }

  Status Read(int64_t offset, void* out, int64_t bytes) override {
    char* next = static_cast<char*>(out);
    while (bytes > 0) {
      const int64_t count = disk::ReadSome(file_, offset, next, bytes);
      if (count < 0) return IoFailure(path_, "read", errno);
      if (count == 0) return CorruptionFailure(path_, offset, "the file ends here");
      next += count;
      bytes -= count;
      offset += count;
    }
    return Status::Ok();
  }

 private:
  std::string path_;
  int file_;
  int64_t bytes_;
};

class DiskFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    if (MV_FAILPOINT("file.create")) return IoFailure(path, "create", EIO);
    const int file = disk::Create(path);
    if (file < 0) return IoFailure(path, "create", errno);
    return std::unique_ptr<WritableFile>(std::make_unique<LocalWritableFile>(path, file));
  }

  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    MV_ASSIGN_OR_RETURN(const EntryKind kind, KindOf(path));
    if (kind == EntryKind::kFolder) return IoFailure(path, "read", EISDIR);
    if (kind == EntryKind::kOther) return IoFailure(path, "read", EINVAL);
    const int file = disk::Open(path);
    if (file < 0) return IoFailure(path, "open", errno);
    // The path may have led elsewhere a moment ago, so the open file counts.
    const int64_t bytes = disk::SizeOf(file);
    const int error_number = errno;
    auto opened = std::make_unique<LocalReadableFile>(path, file, bytes);
    if (bytes < 0) return IoFailure(path, "read", error_number);
    return std::unique_ptr<ReadableFile>(std::move(opened));
  }

  Result<EntryKind> KindOf(const std::string& path) override {
    std::error_code error;
    const fs::file_status found = fs::status(PathOf(path), error);
    // Below a file there can never be anything, so that is no missing entry but a wrong path.
    if (found.type() == fs::file_type::not_found && error != std::errc::not_a_directory) {
      return EntryKind::kNone;
    }
    MV_RETURN_IF_NOT_OK(Check(path, "look at", error));
    if (fs::is_regular_file(found)) return EntryKind::kFile;
    return fs::is_directory(found) ? EntryKind::kFolder : EntryKind::kOther;
  }

  Result<std::vector<std::string>> List(const std::string& path) override {
    const StreamNumbersTaken taken;
    std::vector<std::string> names;
    std::error_code error;
    fs::directory_iterator entry(PathOf(path), error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      names.push_back(entry->path().filename().u8string());
    }
    MV_RETURN_IF_NOT_OK(Check(path, "list", error));
    return names;
  }

  Status EnsureFolders(const std::string& path) override {
    std::error_code error;
    fs::create_directories(PathOf(path), error);
    return Check(path, "make folder", error);
  }

  Status CreateFolder(const std::string& path) override {
    if (MV_FAILPOINT("folder.make")) return IoFailure(path, "make folder", EIO);
    std::error_code error;
    const bool is_made = fs::create_directory(PathOf(path), error);
    if (!is_made && !error) return IoFailure(path, "make folder", EEXIST);
    return Check(path, "make folder", error);
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (MV_FAILPOINT("file.rename")) return IoFailure(to, "rename to", EIO);
    return disk::Rename(from, to);
  }

  Status Link(const std::string& from, const std::string& to) override {
    if (MV_FAILPOINT("file.link")) return IoFailure(to, "link", EIO);
    std::error_code error;
    fs::create_hard_link(PathOf(from), PathOf(to), error);
    return Check(to, "link", error);
  }

  Status SyncFolder(const std::string& path) override {
    if (MV_FAILPOINT("folder.sync")) return IoFailure(path, "sync", EIO);
    return disk::SyncFolder(path);
  }

  Status Remove(const std::string& path) override {
    if (MV_FAILPOINT("file.remove")) return IoFailure(path, "remove", EIO);
    std::error_code error;
    const bool is_removed = fs::remove(PathOf(path), error);
    if (!is_removed && !error) return IoFailure(path, "remove", ENOENT);
    return Check(path, "remove", error);
  }

  Status RemoveFolder(const std::string& path,
                      bool (*may_remove)(const std::string& name)) override {
    return disk::RemoveFolder(path, may_remove);
  }
};

}  // namespace

FileSystem* LocalFileSystem() {
  // The object is never destroyed: a thread may still be writing when the process exits.
  static auto* const files = new DiskFileSystem;
  return files;
}

Status IoFailure(const std::string& path, const char* action, int error_number,
                 int64_t bytes_done) {
  std::string text = StrCat(path, ": cannot ", action, ": ", std::strerror(error_number));
  if (bytes_done > 0) text += StrCat(", after ", bytes_done, " bytes");
  return Status(Code::kCheckpointIo, text, FileFault{path, error_number, bytes_done});
}

Status IoFailure(const std::string& path, const char* action, const std::error_code& error) {
  // The errno that is closest to an error of Windows.
  const std::error_condition condition = error.default_error_condition();
  const bool is_errno = condition.category() == std::generic_category();
  return IoFailure(path, action, is_errno ? condition.value() : EIO);
}

Status ForeignEntryFailure(const std::string& path, const std::string& name) {
  return Status(
      Code::kCheckpointIo,
      StrCat(path, ": cannot remove: it contains ", JsonText(name), ", which no save writes"),
      FileFault{path, ENOTEMPTY, 0});
}

Status CheckRoomFor(int64_t bytes, const std::string& path) {
  // Looking up the free memory reads files, which would take longer than to read a small one.
  constexpr int64_t kAlwaysFits = int64_t{1} << 20;
  return bytes <= kAlwaysFits ? Status::Ok() : CheckIsFree(bytes).In(path);
}

Status CorruptionFailure(const std::string& path, int64_t offset, const std::string& problem) {
  return Status(Code::kCheckpointCorrupt, StrCat(path, ", byte ", offset, ": ", problem),
                FileFault{path, 0, offset});
}

}  // namespace multiverso
