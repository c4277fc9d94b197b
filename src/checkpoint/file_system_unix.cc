#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/descriptor.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "checkpoint/file_system.h"

namespace multiverso {
namespace {

constexpr mode_t kFileMode = 0666;  // before the user's umask
constexpr mode_t kFolderMode = 0777;
// The most bytes of one system call. The kernel accepts at most 2 GiB minus a page.
constexpr int64_t kMaxBytesPerCall = int64_t{1} << 30;
// After so many bytes the kernel is told to start writing them, so that Sync has less to do.
constexpr int64_t kFlushInterval = int64_t{8} << 20;

// Tells the kernel to start writing. The result of this hint is ignored, since Sync reports
// failures.
void BeginFlush([[maybe_unused]] int fd, [[maybe_unused]] int64_t offset,
                [[maybe_unused]] int64_t bytes) {
#if defined(__linux__)
  (void)sync_file_range(fd, offset, bytes, SYNC_FILE_RANGE_WRITE);
#endif
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PosixWritableFile() override { close(fd_); }

  Status Write(const void* data, int64_t bytes) override {
    const char* next = static_cast<const char*>(data);
    if (MV_FAILPOINT("file.write")) return IoFailure(path_, "write", EIO, written_);
    while (bytes > 0) {
      const ssize_t count =
          write(fd_, next, static_cast<size_t>(std::min(bytes, kMaxBytesPerCall)));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return IoFailure(path_, "write", errno, written_);
      next += count;
      bytes -= count;
      written_ += count;
    }
    if (written_ - flushed_ >= kFlushInterval) {
      BeginFlush(fd_, flushed_, written_ - flushed_);
      flushed_ = written_;
    }
    return Status::Ok();
  }

  Status Sync() override {
    if (MV_FAILPOINT("file.sync")) return IoFailure(path_, "sync", EIO, written_);
#if defined(F_FULLFSYNC)
    // On macOS, fsync leaves the data in the cache of the disk. Some file systems cannot do more.
    if (fcntl(fd_, F_FULLFSYNC) == 0) return Status::Ok();
#endif
    if (fsync(fd_) != 0) return IoFailure(path_, "sync", errno, written_);
    return Status::Ok();
  }

 private:
  std::string path_;
  int fd_;
  int64_t written_ = 0;
  int64_t flushed_ = 0;  // bytes that the kernel has been told to write
};

// Closes a folder that fdopendir has opened.
struct FolderCloser {
  void operator()(DIR* folder) const { closedir(folder); }
};
using OpenFolder = std::unique_ptr<DIR, FolderCloser>;

// Returns the folder of a descriptor, which it owns; null with errno if `fd` is -1 or no folder.
OpenFolder FolderOf(int fd) {
  DIR* const folder = fd < 0 ? nullptr : fdopendir(fd);
  if (fd >= 0 && folder == nullptr) {
    const int error_number = errno;
    close(fd);
    errno = error_number;
  }
  return OpenFolder(folder);
}

Result<std::vector<std::string>> NamesIn(DIR* folder, const std::string& path) {
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  if (errno != 0) return IoFailure(path, "list", errno);
  return names;
}

Status RemoveAt(int folder, const std::string& name, int flags, const std::string& path) {
  if (MV_FAILPOINT("file.remove")) return IoFailure(path, "remove", EIO);
  if (unlinkat(folder, name.c_str(), flags) == 0 || errno == ENOENT) return Status::Ok();
  return IoFailure(path, "remove", errno);
}

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(std::string path, int fd, int64_t bytes)
      : path_(std::move(path)), fd_(fd), bytes_(bytes) {}
  ~PosixReadableFile() override { close(fd_); }

  const std::string& path() const override { return path_; }
  int64_t bytes() const override { return bytes_; }

  Status Read(int64_t offset, void* out, int64_t bytes) override {
    char* next = static_cast<char*>(out);
    while (bytes > 0) {
      const ssize_t count =
          pread(fd_, next, static_cast<size_t>(std::min(bytes, kMaxBytesPerCall)), offset);
      if (count < 0 && errno == EINTR) continue;
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
  int fd_;
  int64_t bytes_;
};

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    if (MV_FAILPOINT("file.create")) return IoFailure(path, "create", EIO);
    const int fd = OpenDescriptor(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, kFileMode);
    if (fd < 0) return IoFailure(path, "create", errno);
    return std::unique_ptr<WritableFile>(std::make_unique<PosixWritableFile>(path, fd));
  }

  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    // O_NONBLOCK matters for a pipe: open would block until the other end is opened.
    const int fd = OpenDescriptor(path.c_str(), O_RDONLY | O_NONBLOCK);
    if (fd < 0) return IoFailure(path, "open", errno);
    struct stat info{};
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      const int error_number = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
      close(fd);
      return IoFailure(path, "read", error_number);
    }
    return std::unique_ptr<ReadableFile>(
        std::make_unique<PosixReadableFile>(path, fd, static_cast<int64_t>(info.st_size)));
  }

  Result<EntryKind> Look(const std::string& path) override {
    struct stat info{};
    if (stat(path.c_str(), &info) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return EntryKind::kNone;
      return IoFailure(path, "look at", errno);
    }
    if (S_ISREG(info.st_mode)) return EntryKind::kFile;
    return S_ISDIR(info.st_mode) ? EntryKind::kFolder : EntryKind::kOther;
  }

  Result<std::vector<std::string>> List(const std::string& path) override {
    const OpenFolder folder = FolderOf(OpenDescriptor(path.c_str(), O_RDONLY | O_DIRECTORY));
    if (folder == nullptr) return IoFailure(path, "list", errno);
    return NamesIn(folder.get(), path);
  }

  Status MakeFolders(const std::string& path) override {
    for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
      // The result is ignored: if a parent is missing, the creation of the last folder fails.
      (void)mkdir(path.substr(0, end).c_str(), kFolderMode);
    }
    if (mkdir(path.c_str(), kFolderMode) == 0) return Status::Ok();
    const int error_number = errno;
    struct stat info{};
    if (error_number == EEXIST && stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
      return Status::Ok();
    }
    return IoFailure(path, "make folder", error_number);
  }

  Status MakeFolder(const std::string& path) override {
    if (MV_FAILPOINT("folder.make")) return IoFailure(path, "make folder", EIO);
    if (mkdir(path.c_str(), kFolderMode) != 0) return IoFailure(path, "make folder", errno);
    return Status::Ok();
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (MV_FAILPOINT("file.rename")) return IoFailure(to, "rename to", EIO);
    if (rename(from.c_str(), to.c_str()) != 0) return IoFailure(to, "rename to", errno);
    return Status::Ok();
  }

  Status SyncFolder(const std::string& path) override {
    if (MV_FAILPOINT("folder.sync")) return IoFailure(path, "sync", EIO);
    const int fd = OpenDescriptor(path.c_str(), O_RDONLY | O_DIRECTORY);
    if (fd < 0) return IoFailure(path, "open", errno);
    const int result = fsync(fd);
    const int error_number = errno;
    close(fd);
    // EINVAL is no failure: the file system cannot sync folders.
    if (result != 0 && error_number != EINVAL) return IoFailure(path, "sync", error_number);
    return Status::Ok();
  }

  Status Remove(const std::string& path) override {
    if (MV_FAILPOINT("file.remove")) return IoFailure(path, "remove", EIO);
    if (unlink(path.c_str()) != 0) return IoFailure(path, "remove", errno);
    return Status::Ok();
  }

  Status RemoveFolder(const std::string& path,
                      bool (*is_removed)(const std::string& name)) override {
    // All names are looked up in open folders, so that no link that appears meanwhile is followed.
    const size_t slash = path.rfind('/');
    const std::string name = path.substr(slash + 1);
    const std::string parent_path = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    const OpenFolder parent = FolderOf(OpenDescriptor(parent_path.c_str(), O_RDONLY | O_DIRECTORY));
    if (parent == nullptr) return IoFailure(parent_path, "open", errno);
    const int parent_fd = dirfd(parent.get());
    struct stat info{};
    if (fstatat(parent_fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode))
      return RemoveAt(parent_fd, name, 0, path);
    const OpenFolder folder = FolderOf(OpenAboveStandardStreams([&] {
      return openat(parent_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }));
    if (folder == nullptr) {
      return errno == ENOENT ? Status::Ok() : IoFailure(path, "remove", errno);
    }
    const int fd = dirfd(folder.get());
    const auto entries = NamesIn(folder.get(), path);
    if (!entries.ok()) return entries.status();
    // A failure does not keep the other files, whose space is freed.
    Status status;
    for (const std::string& entry : entries.value()) {
      const Status removed = is_removed(entry) ? RemoveAt(fd, entry, 0, StrCat(path, "/", entry))
                                               : ForeignEntryFailure(path, entry);
      if (status.ok()) status = removed;
    }
    return status.ok() ? RemoveAt(parent_fd, name, AT_REMOVEDIR, path) : status;
  }
};

}  // namespace

FileSystem* LocalFileSystem() {
  // The object is never destroyed: a thread may still be writing when the process exits.
  static auto* const files = new PosixFileSystem;
  return files;
}

}  // namespace multiverso
