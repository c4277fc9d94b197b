#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "base/descriptor.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "checkpoint/disk.h"
#include "checkpoint/file_system.h"

namespace multiverso::disk {
namespace {

// The kernel accepts at most 2 GiB minus a page in one call.
constexpr int64_t kMaxBytesPerCall = int64_t{1} << 30;

// Calls `transfer(bytes)` again while a signal interrupts it.
template <class Transfer>
int64_t WithoutInterruptions(int64_t bytes, const Transfer& transfer) {
  for (;;) {
    const ssize_t count = transfer(static_cast<size_t>(std::min(bytes, kMaxBytesPerCall)));
    if (count >= 0 || errno != EINTR) return count;
  }
}

struct FolderCloser {
  void operator()(DIR* folder) const { closedir(folder); }
};
using OpenFolder = std::unique_ptr<DIR, FolderCloser>;

// Opens a folder by its path from the folder `parent` on. Returns null with errno after a failure.
OpenFolder OpenFolderAt(int parent, const std::string& path, int flags = 0) {
  const int fd = OpenAboveStandardStreams(
      [&] { return openat(parent, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags); });
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

Status RemoveAt(DIR* folder, const std::string& name, int flags, const std::string& path) {
  if (MV_FAILPOINT("file.remove")) return IoFailure(path, "remove", EIO);
  if (unlinkat(dirfd(folder), name.c_str(), flags) == 0 || errno == ENOENT) return Status::Ok();
  return IoFailure(path, "remove", errno);
}

}  // namespace

int Create(const std::string& path) {
  return OpenWithoutLinks(path, O_WRONLY | O_CREAT | O_EXCL, /*mode=*/0666);
}

int Open(const std::string& path) { return OpenDescriptor(path.c_str(), O_RDONLY | O_NONBLOCK); }

void Close(int file) { close(file); }

int64_t SizeOf(int file) {
  struct stat info{};
  if (fstat(file, &info) != 0) return -1;
  if (S_ISREG(info.st_mode)) return info.st_size;
  errno = EINVAL;
  return -1;
}

int64_t WriteSome(int file, const void* data, int64_t bytes) {
  return WithoutInterruptions(bytes, [&](size_t count) { return write(file, data, count); });
}

int64_t ReadSome(int file, int64_t offset, void* out, int64_t bytes) {
  return WithoutInterruptions(bytes, [&](size_t count) { return pread(file, out, count, offset); });
}

void BeginFlush([[maybe_unused]] int file, [[maybe_unused]] int64_t offset,
                [[maybe_unused]] int64_t bytes) {
#if defined(__linux__)
  (void)sync_file_range(file, offset, bytes, SYNC_FILE_RANGE_WRITE);
#endif
}

bool Flush(int file) {
#if defined(F_FULLFSYNC)
  // On macOS, fsync leaves the data in the cache of the disk. Some file systems cannot do more.
  if (fcntl(file, F_FULLFSYNC) == 0) return true;
#endif
  return fsync(file) == 0;
}

Status Rename(const std::string& from, const std::string& to) {
  return rename(from.c_str(), to.c_str()) == 0 ? Status::Ok() : IoFailure(to, "rename to", errno);
}

Status SyncFolder(const std::string& path) {
  const OpenFolder folder = OpenFolderAt(AT_FDCWD, path);
  if (folder == nullptr) return IoFailure(path, "open", errno);
  // EINVAL is no failure: the file system cannot sync folders.
  const bool is_synced = fsync(dirfd(folder.get())) == 0 || errno == EINVAL;
  return is_synced ? Status::Ok() : IoFailure(path, "sync", errno);
}

Status RemoveFolder(const std::string& path, bool (*may_remove)(const std::string& name)) {
  // All names are looked up in open folders, so that no link that appears meanwhile is followed.
  const size_t slash = path.rfind('/');
  const std::string name = path.substr(slash + 1);
  const std::string parent_path = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const OpenFolder parent = OpenFolderAt(AT_FDCWD, parent_path);
  if (parent == nullptr) return IoFailure(parent_path, "open", errno);
  struct stat info{};
  if (fstatat(dirfd(parent.get()), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISLNK(info.st_mode)) {
    return RemoveAt(parent.get(), name, 0, path);
  }
  const OpenFolder folder = OpenFolderAt(dirfd(parent.get()), name, O_NOFOLLOW);
  if (folder == nullptr) return errno == ENOENT ? Status::Ok() : IoFailure(path, "remove", errno);
  MV_ASSIGN_OR_RETURN(const auto entries, NamesIn(folder.get(), path));
  // A file that cannot be removed does not keep the others, whose space becomes free.
  Status status;
  for (const std::string& entry : entries) {
    const Status removed = may_remove(entry)
                               ? RemoveAt(folder.get(), entry, 0, StrCat(path, "/", entry))
                               : ForeignEntryFailure(path, entry);
    if (status.ok()) status = removed;
  }
  return status.ok() ? RemoveAt(parent.get(), name, AT_REMOVEDIR, path) : status;
}

}  // namespace multiverso::disk
