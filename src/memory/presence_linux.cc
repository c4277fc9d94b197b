#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/descriptor.h"
#include "base/process.h"
#include "memory/presence.h"

namespace multiverso {
namespace {

// A program may have many sessions, and not many descriptors.
constexpr size_t kMostDescriptors = 16;

int64_t OwnNamespace() {
  struct stat info{};
  return stat("/proc/self/ns/pid", &info) == 0 ? static_cast<int64_t>(info.st_ino) : 0;
}

bool IsSame(const ProcessMark& one, const ProcessMark& other) {
  return one.id == other.id && one.start == other.start && one.name_space == other.name_space;
}

// A descriptor of a process is ready when all its threads have ended, even if its parent does not
// wait for it.
bool IsReady(int descriptor) {
  pollfd ended{descriptor, POLLIN, 0};
  return poll(&ended, 1, 0) == 1;
}

}  // namespace

ProcessMark OwnProcess() { return ProcessMark{getpid(), ProcessStart(getpid()), OwnNamespace()}; }

ProcessWatch::~ProcessWatch() {
  for (const auto& [number, watched] : watched_) close(watched.descriptor);
}

bool ProcessWatch::HasEnded(int number, const ProcessMark& process) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = watched_.find(number);
  if (found != watched_.end()) {
    if (IsSame(found->second.process, process)) return IsReady(found->second.descriptor);
    close(found->second.descriptor);
    watched_.erase(found);
  }
  const bool is_comparable =
      process.start != 0 && process.name_space != 0 && process.name_space == OwnNamespace();
  if (!is_comparable) return false;
#if defined(SYS_pidfd_open)
  const int descriptor = OpenAboveStandardStreams(
      [&] { return static_cast<int>(syscall(SYS_pidfd_open, process.id, 0)); });
  if (descriptor < 0) return errno == ESRCH;
  // Another process may have the id by now.
  const int64_t start = ProcessStart(process.id);
  const bool has_ended = IsReady(descriptor) || (start != 0 && start != process.start);
  if (start == process.start && !has_ended && watched_.size() < kMostDescriptors) {
    watched_.emplace(number, Watched{process, descriptor});
  } else {
    close(descriptor);
  }
  return has_ended;
#else
  return false;
#endif
}

}  // namespace multiverso
