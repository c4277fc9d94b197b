#include <poll.h>
#include <signal.h>
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

// Returns a descriptor of that process, or -1 if the process has ended, which *has_ended says, or
// if the system cannot tell.
int OpenProcess(const ProcessMark& process, bool* has_ended) {
  *has_ended = false;
  const bool is_comparable =
      process.start != 0 && process.name_space != 0 && process.name_space == OwnNamespace();
  if (!is_comparable) return -1;
#if defined(SYS_pidfd_open)
  const int descriptor = OpenAboveStandardStreams(
      [&] { return static_cast<int>(syscall(SYS_pidfd_open, process.id, 0)); });
  if (descriptor < 0) {
    *has_ended = errno == ESRCH;
    return -1;
  }
  // Another process may have the id by now.
  const int64_t start = ProcessStart(process.id);
  *has_ended = IsReady(descriptor) || (start != 0 && start != process.start);
  if (start == process.start && !*has_ended) return descriptor;
  close(descriptor);
#endif
  return -1;
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
  bool has_ended = false;
  const int descriptor = OpenProcess(process, &has_ended);
  if (descriptor >= 0 && watched_.size() < kMostDescriptors) {
    watched_.emplace(number, Watched{process, descriptor});
  } else if (descriptor >= 0) {
    close(descriptor);
  }
  return has_ended;
}

bool ProcessWatch::End(int number, const ProcessMark& process) {
#if defined(SYS_pidfd_send_signal)
  if (process.id == getpid()) return false;
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = watched_.find(number);
  const bool is_watched = found != watched_.end() && IsSame(found->second.process, process);
  bool has_ended = false;
  const int descriptor = is_watched ? found->second.descriptor : OpenProcess(process, &has_ended);
  if (descriptor < 0) return has_ended;
  const bool is_sent = syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, nullptr, 0) == 0 ||
                       errno == ESRCH;  // it has ended meanwhile
  if (!is_watched) close(descriptor);
  return is_sent;
#else
  return false;
#endif
}

}  // namespace multiverso
