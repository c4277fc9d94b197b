#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "base/text.h"
#include "memory/presence.h"

namespace multiverso {
namespace {

struct flock ByteLock(int index, short type = F_WRLCK) {  // NOLINT: the type of the field
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = index;
  lock.l_len = 1;
  return lock;
}

Status Mark(int fd, struct flock lock) {
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return Status::Ok();
  return Status(Code::kInternal, StrCat("cannot lock byte ", lock.l_start,
                                        " of the control segment: ", std::strerror(errno)));
}

}  // namespace

Status MarkPresent(int fd, int index) { return Mark(fd, ByteLock(index)); }

Status MarkShared(int fd, int index) { return Mark(fd, ByteLock(index, F_RDLCK)); }

void ClearPresent(int fd, int index) {
  struct flock lock = ByteLock(index, F_UNLCK);
  (void)fcntl(fd, F_OFD_SETLK, &lock);
}

bool IsPresent(int fd, int index) {
  struct flock lock = ByteLock(index);
  // After an error the answer is unknown, and to declare a live process dead is the worse mistake.
  if (fcntl(fd, F_OFD_GETLK, &lock) != 0) return true;
  return lock.l_type != F_UNLCK;
}

int OpenForMarks(int fd) {
  return OpenDescriptor(StrCat("/proc/self/fd/", fd).c_str(), O_RDWR | O_NONBLOCK);
}

void CloseMarks(int fd) { close(fd); }

}  // namespace multiverso
