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

int64_t OwnNamespace() {
  struct stat info{};
  return stat("/proc/self/ns/pid", &info) == 0 ? static_cast<int64_t>(info.st_ino) : 0;
}

}  // namespace

ProcessMark OwnProcess() { return ProcessMark{getpid(), ProcessStart(getpid()), OwnNamespace()}; }

bool HasEnded(const ProcessMark& process) {
  const bool is_comparable =
      process.start != 0 && process.name_space != 0 && process.name_space == OwnNamespace();
  if (!is_comparable) return false;
#if defined(SYS_pidfd_open)
  const int descriptor = OpenAboveStandardStreams(
      [&] { return static_cast<int>(syscall(SYS_pidfd_open, process.id, 0)); });
  if (descriptor < 0) return errno == ESRCH;
  // It is ready when all threads of the process have ended, even if its parent does not wait for
  // it.
  pollfd ended{descriptor, POLLIN, 0};
  const bool has_ended = poll(&ended, 1, 0) == 1;
  const int64_t start = has_ended ? 0 : ProcessStart(process.id);
  close(descriptor);
  // Another process may have the id by now.
  return has_ended || (start != 0 && start != process.start);
#else
  return false;
#endif
}

}  // namespace multiverso
