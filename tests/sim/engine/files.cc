// Files: which process has which descriptor, locks that wait, and the files that tell about the
// machine and its processes. The content of all other files is on the machine's file system.
//
// Under /proc, the ranks see only each other, and under /dev/shm a folder of this simulation.
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <map>
#include <set>

#include "engine/processes.h"
#include "engine/raw_call.h"
#include "engine/sockets.h"

namespace sim {
namespace {

int Fail(int error) {
  errno = error;
  return -1;
}

// ---- Who has which descriptor
// --------------------------------------------------------------------

constexpr int kNobody = -2;
std::vector<int> owners;             // ranks, by descriptor
std::map<int, std::string> folders;  // descriptors of folders under /proc, with their paths

int OwnerOf(int fd) {
  const auto index = static_cast<size_t>(fd);
  return fd >= 0 && index < owners.size() ? owners[index] : kNobody;
}

// Gives a descriptor to the current rank, and returns it.
int Own(long fd) {
  if (fd < 0 || CurrentRank() < 0) return static_cast<int>(fd);
  const auto index = static_cast<size_t>(fd);
  if (owners.size() <= index) owners.resize(index + 1, kNobody);
  owners[index] = CurrentRank();
  return static_cast<int>(fd);
}

int Close(int fd) {
  if (OwnerOf(fd) != kNobody) owners[static_cast<size_t>(fd)] = kNobody;
  folders.erase(fd);
  return static_cast<int>(RawCall(SYS_close, fd));
}

// ---- What the ranks see
// --------------------------------------------------------------------------

// What is at a path.
struct Entry {
  enum Kind { kReal, kText, kFolder, kNothing } kind = kReal;
  std::string text;  // the path on the machine, or the content
};

std::string shared_folder;  // stands for /dev/shm; empty before its first use

const std::string& SharedFolder() {
  if (shared_folder.empty()) {
    char name[] = "/dev/shm/multiverso-simulation-XXXXXX";
    if (mkdtemp(name) == nullptr) GiveUp("cannot create a folder in /dev/shm");
    shared_folder = name;
  }
  return shared_folder;
}

// Looks up a path below /proc/<pid>/.
Entry FindOfProcess(const Rank& rank, const std::string& name) {
  if (name == "stat") return {Entry::kText, StatOf(rank)};
  if (name == "fd") return {Entry::kFolder, ""};
  if (name == "cgroup") return {Entry::kText, "0::/\n"};
  if (name == "mountinfo") return {Entry::kText, ""};
  if (name.compare(0, 3, "ns/") == 0) return {Entry::kText, name};
  if (name.compare(0, 3, "fd/") != 0) return {Entry::kNothing, ""};
  const std::string number = name.substr(3);
  const bool is_its_own = OwnerOf(atoi(number.c_str())) == rank.number;
  return is_its_own ? Entry{Entry::kReal, "/proc/self/fd/" + number} : Entry{Entry::kNothing, ""};
}

Entry FindInProc(const std::string& path) {
  constexpr size_t kPrefix = 6;  // "/proc/"
  if (path.size() < kPrefix) return {Entry::kFolder, ""};
  if (path == "/proc/meminfo") return {Entry::kText, "MemAvailable: 67108864 kB\n"};
  if (path == "/proc/sys/kernel/random/boot_id") {
    return {Entry::kText, "machine-" + std::to_string(current->rank->machine) + "\n"};
  }
  const size_t slash = path.find('/', kPrefix);
  const std::string process = path.substr(kPrefix, slash - kPrefix);
  const Rank* const rank = process == "self" ? current->rank : FindProcess(atoll(process.c_str()));
  if (rank == nullptr || rank->number < 0 || rank->has_ended) return {Entry::kNothing, ""};
  if (slash == std::string::npos) return {Entry::kFolder, ""};
  return FindOfProcess(*rank, path.substr(slash + 1));
}

bool Begins(const std::string& path, const char* folder) {
  const size_t length = strlen(folder);
  return path.compare(0, length, folder) == 0 && (path.size() == length || path[length] == '/');
}

Entry FindEntry(const char* given) {
  std::string path = given;
  if (!IsInFiber()) return {Entry::kReal, path};
  PassPoint();
  if (Begins(path, "/proc")) return FindInProc(path);
  if (Begins(path, "/sys")) return {Entry::kNothing, ""};
  if (Begins(path, "/dev/shm")) path.replace(0, strlen("/dev/shm"), SharedFolder());
  return {Entry::kReal, path};
}

// Opens a text as a file without a name.
int OpenText(const std::string& text) {
  const long fd = RawCall(SYS_memfd_create, reinterpret_cast<long>("text"), MFD_CLOEXEC);
  if (fd < 0) return -1;
  (void)RawCall(SYS_write, fd, reinterpret_cast<long>(text.data()), text.size());
  (void)RawCall(SYS_lseek, fd, 0, SEEK_SET);
  return Own(fd);
}

int Open(int folder, const char* path, int flags, int mode) {
  const Entry entry = FindEntry(path);
  if (entry.kind == Entry::kNothing) return Fail(ENOENT);
  if (entry.kind == Entry::kReal) {
    return Own(
        RawCall(SYS_openat, folder, reinterpret_cast<long>(entry.text.c_str()), flags, mode));
  }
  const int fd = OpenText(entry.text);
  if (entry.kind == Entry::kFolder) folders[fd] = path;
  return fd;
}

// Describes a file of the simulation itself.
int Describe(const Entry& entry, struct stat* info) {
  if (entry.kind == Entry::kNothing) return Fail(ENOENT);
  *info = {};
  info->st_mode = entry.kind == Entry::kFolder ? S_IFDIR | 0555 : S_IFREG | 0444;
  info->st_uid = geteuid();
  info->st_ino = 1 + entry.text.size();  // tells the namespaces apart from each other
  info->st_nlink = 1;
  return 0;
}

// ---- Folders
// -------------------------------------------------------------------------------------

struct Folder {
  int fd;
  std::vector<std::string> names;
  size_t next = 0;
  dirent entry{};
};
std::set<Folder*> open_folders;  // those under /proc

Folder* FindFolder(DIR* given) {
  auto* const folder = reinterpret_cast<Folder*>(given);
  return open_folders.count(folder) > 0 ? folder : nullptr;
}

std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  if (path == "/proc" || path == "/proc/") {
    for (const Rank* rank : AllRanks()) {
      if (rank == nullptr || rank->has_ended || rank->machine != current->rank->machine) continue;
      names.push_back(std::to_string(kFirstProcess + rank->number));
    }
    return names;
  }
  const bool is_own = Begins(path, "/proc/self");
  const Rank* const rank =
      is_own ? current->rank : FindProcess(atoll(path.c_str() + strlen("/proc/")));
  for (size_t fd = 0; rank != nullptr && fd < owners.size(); ++fd) {
    if (owners[fd] == rank->number) names.push_back(std::to_string(fd));
  }
  return names;
}

DIR* OpenFolder(int fd) {
  auto* const folder = new Folder{fd, NamesIn(folders[fd])};
  open_folders.insert(folder);
  return reinterpret_cast<DIR*>(folder);
}

// ---- Locks
// ---------------------------------------------------------------------------------------

// Makes a call that would wait for a lock, again and again.
template <class Try>
int AwaitLock(const Try& try_lock) {
  constexpr int64_t kNap = 1000000;
  for (;;) {
    PassPoint();
    if (try_lock() == 0) return 0;
    if (errno != EAGAIN && errno != EACCES && errno != EWOULDBLOCK) return -1;
    Block(Key(), Now() + kNap, "file lock");
  }
}

void Start() {
  owners.clear();
  folders.clear();
}

void Release(int rank) {
  for (size_t fd = 0; fd < owners.size(); ++fd) {
    if (owners[fd] == rank) (void)Close(static_cast<int>(fd));
  }
}

void Count(int rank, Holdings* held) {
  for (const int owner : owners) held->descriptors += owner == rank ? 1 : 0;
}

FILE* OpenStream(const char* path, const char* mode, FILE* (*open_real)(const char*, const char*)) {
  const Entry entry = FindEntry(path);
  if (entry.kind == Entry::kReal) {
    FILE* const file = open_real(entry.text.c_str(), mode);
    if (file != nullptr && IsInFiber()) (void)Own(fileno(file));
    return file;
  }
  const int fd = Open(AT_FDCWD, path, O_RDONLY, 0);
  return fd < 0 ? nullptr : fdopen(fd, mode);
}

}  // namespace

const Seam kFiles{Start, Release, Count};

}  // namespace sim

using namespace sim;  // NOLINT: the functions below replace those of the C library

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const int mode = va_arg(list, int);
  va_end(list);
  return Open(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const int mode = va_arg(list, int);
  va_end(list);
  return Open(folder, path, flags, mode);
}

int memfd_create(const char* name, unsigned flags) noexcept {
  return Own(RawCall(SYS_memfd_create, reinterpret_cast<long>(name), flags));
}

FILE* fopen(const char* path, const char* mode) { return OpenStream(path, mode, SIM_REAL(fopen)); }
FILE* fopen64(const char* path, const char* mode) {
  return OpenStream(path, mode, SIM_REAL(fopen));
}
int fclose(FILE* file) {
  const int fd = fileno(file);
  if (OwnerOf(fd) != kNobody) owners[static_cast<size_t>(fd)] = kNobody;
  return SIM_REAL(fclose)(file);
}

int close(int fd) {
  if (!IsInFiber()) return Close(fd);
  PassPoint();
  if (!IsSocket(fd)) return Close(fd);
  CloseSocket(fd);
  return 0;
}

int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  const long argument = va_arg(list, long);
  va_end(list);
  if (!IsInFiber()) return static_cast<int>(RawCall(SYS_fcntl, fd, command, argument));
  // The library asks whether the streams 0, 1 and 2 are open, which depends on who runs this.
  if (command == F_GETFD && fd <= STDERR_FILENO) return 0;
  if (IsSocket(fd)) GiveUp("the simulation has no fcntl for sockets");
  PassPoint();
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
    return Own(RawCall(SYS_fcntl, fd, command, argument));
  }
  const int at_once = command == F_OFD_SETLKW ? F_OFD_SETLK : command;
  const auto call = [&] { return static_cast<int>(RawCall(SYS_fcntl, fd, at_once, argument)); };
  return command == at_once ? call() : AwaitLock(call);
}

int flock(int fd, int operation) noexcept {
  const auto call = [&] { return static_cast<int>(RawCall(SYS_flock, fd, operation | LOCK_NB)); };
  if (!IsInFiber()) return static_cast<int>(RawCall(SYS_flock, fd, operation));
  PassPoint();
  return (operation & (LOCK_NB | LOCK_UN)) != 0 ? call() : AwaitLock(call);
}

int stat(const char* path, struct stat* info) noexcept {
  const Entry entry = FindEntry(path);
  if (entry.kind != Entry::kReal) return Describe(entry, info);
  return SIM_REAL(stat)(entry.text.c_str(), info);
}

int lstat(const char* path, struct stat* info) noexcept {
  const Entry entry = FindEntry(path);
  if (entry.kind != Entry::kReal) return Describe(entry, info);
  return SIM_REAL(lstat)(entry.text.c_str(), info);
}

int fstatat(int folder, const char* path, struct stat* info, int flags) noexcept {
  const Entry entry = FindEntry(path);
  if (entry.kind != Entry::kReal) return Describe(entry, info);
  return SIM_REAL(fstatat)(folder, entry.text.c_str(), info, flags);
}

ssize_t readlink(const char* path, char* out, size_t bytes) noexcept {
  const Entry entry = FindEntry(path);
  if (entry.kind != Entry::kReal) return Fail(entry.kind == Entry::kNothing ? ENOENT : EINVAL);
  return SIM_REAL(readlink)(entry.text.c_str(), out, bytes);
}

int unlink(const char* path) noexcept {
  const Entry entry = FindEntry(path);
  if (entry.kind != Entry::kReal) return Fail(EACCES);
  return SIM_REAL(unlink)(entry.text.c_str());
}

// The room on the machine's disks must not change what a run does.
int statvfs(const char* path, struct statvfs* info) noexcept {
  const int result = SIM_REAL(statvfs)(path, info);
  if (IsInFiber() && result == 0) info->f_bavail = (uint64_t{1} << 40) / info->f_frsize;
  return result;
}
int fstatvfs(int fd, struct statvfs* info) noexcept {
  const int result = SIM_REAL(fstatvfs)(fd, info);
  if (IsInFiber() && result == 0) info->f_bavail = (uint64_t{1} << 40) / info->f_frsize;
  return result;
}

// What was written is in the machine's memory, and the machine goes on.
int fsync(int fd) {
  if (!IsInFiber()) return static_cast<int>(RawCall(SYS_fsync, fd));
  PassPoint();
  return 0;
}
int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned flags) {
  if (!IsInFiber()) return SIM_REAL(sync_file_range)(fd, offset, bytes, flags);
  PassPoint();
  return 0;
}

DIR* opendir(const char* path) {
  const Entry entry = FindEntry(path);
  if (entry.kind == Entry::kReal) return SIM_REAL(opendir)(entry.text.c_str());
  const int fd = Open(AT_FDCWD, path, O_RDONLY, 0);
  return fd < 0 ? nullptr : OpenFolder(fd);
}

DIR* fdopendir(int fd) { return folders.count(fd) > 0 ? OpenFolder(fd) : SIM_REAL(fdopendir)(fd); }

dirent* readdir(DIR* given) {
  Folder* const folder = FindFolder(given);
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
  const Folder* const folder = FindFolder(given);
  return folder != nullptr ? folder->fd : SIM_REAL(dirfd)(given);
}

int closedir(DIR* given) {
  Folder* const folder = FindFolder(given);
  if (folder == nullptr) return SIM_REAL(closedir)(given);
  (void)Close(folder->fd);
  open_folders.erase(folder);
  delete folder;
  return 0;
}

}  // extern "C"
