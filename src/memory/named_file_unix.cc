#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/descriptor.h"
#include "base/text.h"
#include "memory/named_file.h"

namespace multiverso {
namespace {

constexpr char kPrefix[] = "multiverso-segment-";
// Younger files are kept, since a creator needs a moment between creating its file and locking it.
constexpr int kOrphanSeconds = 60;

// Removes this user's files in `directory` that their creators no longer lock.
void RemoveOrphans(const std::string& directory) {
  DIR* listing = opendir(directory.c_str());
  if (listing == nullptr) return;
  std::vector<std::string> names;
  while (const dirent* entry = readdir(listing)) {
    if (std::strncmp(entry->d_name, kPrefix, sizeof(kPrefix) - 1) == 0) {
      names.emplace_back(entry->d_name);
    }
  }
  closedir(listing);
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    const int fd = OpenDescriptor(path.c_str(), O_RDWR | O_NOFOLLOW);
    if (fd < 0) continue;
    struct stat info{};
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid() &&
        info.st_mtime + kOrphanSeconds < std::time(nullptr) && flock(fd, LOCK_EX | LOCK_NB) == 0) {
      unlink(path.c_str());
    }
    close(fd);
  }
}

bool HasRoom(const std::string& directory, int64_t bytes) {
  struct statvfs info{};
  if (statvfs(directory.c_str(), &info) != 0) return false;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize) >= bytes;
}

}  // namespace

std::vector<std::string> SegmentFolders() {
  const char* tmpdir = std::getenv("TMPDIR");
  return {"/dev/shm", tmpdir != nullptr && tmpdir[0] == '/' ? tmpdir : "/tmp"};
}

Result<NamedFile> CreateNamedFile(int64_t bytes) {
  std::string failures;
  for (const std::string& directory : SegmentFolders()) {
    RemoveOrphans(directory);
    if (!HasRoom(directory, bytes)) {
      failures += StrCat(" ", directory, " (not enough room)");
      continue;
    }
    uint64_t random = 0;
    if (getentropy(&random, sizeof(random)) != 0) {
      random = static_cast<uint64_t>(std::time(nullptr)) ^ static_cast<uint64_t>(getpid()) << 32;
    }
    NamedFile file;
    file.path = StrCat(directory, "/", kPrefix, getpid(), "-", std::hex, random);
    file.fd = OpenDescriptor(file.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (file.fd >= 0) {
      flock(file.fd, LOCK_EX | LOCK_NB);
      return file;
    }
    failures += StrCat(" ", directory, " (", std::strerror(errno), ")");
  }
  return Status(Code::kMemory, StrCat("no place for a shared segment of ", SizeText(bytes),
                                      "; tried anonymous memory and", failures));
}

}  // namespace multiverso
