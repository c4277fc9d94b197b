#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/descriptor.h"
#include "base/text.h"
#include "reader/find_segments.h"

namespace multiverso {
namespace {

// Calls use(name) for the entries of a folder that can be read.
template <class Use>
void ForEachEntry(const std::string& folder, const Use& use) {
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) use(entry->d_name);
  closedir(entries);
}

bool IsSegment(const std::string& path) {
  char target[256];
  const ssize_t length = readlink(path.c_str(), target, sizeof(target) - 1);
  if (length <= 0) return false;
  target[length] = '\0';
  // The names of memfds, and of segments in files.
  return std::strstr(target, "/memfd:multiverso") != nullptr ||
         std::strstr(target, "/multiverso-") != nullptr;
}

uint64_t ReadNumber(const std::string& path, int64_t offset) {
  // A pipe or device must not block this call; only regular files are read.
  const int file = OpenDescriptor(path.c_str(), O_RDONLY | O_NONBLOCK);
  if (file < 0) return 0;
  uint64_t number = 0;
  struct stat info{};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) ||
      pread(file, &number, sizeof(number), offset) != sizeof(number)) {
    number = 0;
  }
  close(file);
  return number;
}

}  // namespace

std::vector<int64_t> OtherProcesses() {
  std::vector<int64_t> found;
  ForEachEntry("/proc", [&](const char* name) {
    char* end = nullptr;
    const int64_t pid = std::strtoll(name, &end, 10);
    struct stat info{};
    if (pid <= 0 || *end != '\0' || pid == getpid()) return;
    if (stat(StrCat("/proc/", pid).c_str(), &info) == 0 && info.st_uid == geteuid()) {
      found.push_back(pid);
    }
  });
  return found;
}

std::vector<std::string> SegmentsOf(int64_t pid, uint64_t magic, int64_t offset) {
  std::vector<std::string> found;
  const std::string folder = StrCat("/proc/", pid, "/fd");
  ForEachEntry(folder, [&](const char* name) {
    const std::string path = StrCat(folder, "/", name);
    if (IsSegment(path) && ReadNumber(path, offset) == magic) found.push_back(path);
  });
  return found;
}

}  // namespace multiverso
