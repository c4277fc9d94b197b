// Lists of the simulated folders: the processes in /proc, and the descriptors in /proc/<pid>/fd.
// They name the ranks of one machine.
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <set>

#include "engine/files.h"
#include "engine/processes.h"
#include "engine/raw_call.h"

namespace sim {
namespace {

struct Folder {
  int fd;
  std::vector<std::string> names;
  size_t next = 0;
  dirent entry{};
};
std::set<Folder*> open_folders;

// Returns null for a folder of the machine.
Folder* Find(DIR* given) {
  auto* const folder = reinterpret_cast<Folder*>(given);
  return open_folders.count(folder) > 0 ? folder : nullptr;
}

std::vector<std::string> Processes() {
  std::vector<std::string> names;
  for (const Rank* rank : AllRanks()) {
    if (rank == nullptr || rank->has_ended || rank->machine != current->rank->machine) continue;
    names.push_back(std::to_string(kFirstProcess + rank->number));
  }
  return names;
}

std::vector<std::string> Descriptors(const std::string& process) {
  const Rank* const rank = process.compare(0, strlen("self"), "self") == 0
                               ? current->rank
                               : FindProcess(atoll(process.c_str()));
  std::vector<std::string> names;
  if (rank == nullptr) return names;
  for (const int fd : DescriptorsOf(rank->number)) names.push_back(std::to_string(fd));
  return names;
}

std::vector<std::string> NamesIn(const std::string& path) {
  constexpr size_t kPrefix = 6;  // "/proc/"
  return path.size() <= kPrefix ? Processes() : Descriptors(path.substr(kPrefix));
}

}  // namespace
}  // namespace sim

using namespace sim;  // NOLINT: the functions below replace those of the C library

extern "C" {

DIR* opendir(const char* path) {
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return fd < 0 ? nullptr : fdopendir(fd);
}

DIR* fdopendir(int fd) {
  const std::string* const path = FolderBehind(fd);
  if (path == nullptr) return SIM_REAL(fdopendir)(fd);
  auto* const folder = new Folder{fd, NamesIn(*path)};
  open_folders.insert(folder);
  return reinterpret_cast<DIR*>(folder);
}

dirent* readdir(DIR* given) {
  Folder* const folder = Find(given);
  if (folder == nullptr) return SIM_REAL(readdir)(given);
  if (folder->next == folder->names.size()) return nullptr;
  folder->entry = {};
  folder->entry.d_ino = folder->next + 1;
  folder->entry.d_type = DT_UNKNOWN;
  const std::string& name = folder->names[folder->next++];
  strncpy(folder->entry.d_name, name.c_str(), sizeof(folder->entry.d_name) - 1);
  return &folder->entry;
}

int dirfd(DIR* given) noexcept {
  const Folder* const folder = Find(given);
  return folder != nullptr ? folder->fd : SIM_REAL(dirfd)(given);
}

int closedir(DIR* given) {
  Folder* const folder = Find(given);
  if (folder == nullptr) {
    Disown(SIM_REAL(dirfd)(given));
    return SIM_REAL(closedir)(given);
  }
  (void)close(folder->fd);
  open_folders.erase(folder);
  delete folder;
  return 0;
}

}  // extern "C"
