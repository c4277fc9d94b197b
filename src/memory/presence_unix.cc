#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "memory/presence.h"

namespace multiverso {
namespace {

struct flock ByteLock(int index) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = index;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Status MarkPresent(int fd, int index) {
  struct flock lock = ByteLock(index);
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return Status::Ok();
  return Status(Code::kInternal, StrCat("cannot lock byte ", index,
                                        " of the control segment: ", std::strerror(errno)));
}

void ClearPresent(int fd, int index) {
  struct flock lock = ByteLock(index);
  lock.l_type = F_UNLCK;
  (void)fcntl(fd, F_OFD_SETLK, &lock);
}

bool IsPresent(int fd, int index) {
  struct flock lock = ByteLock(index);
  // After an error the answer is unknown, and to declare a live process dead is the worse mistake.
  if (fcntl(fd, F_OFD_GETLK, &lock) != 0) return true;
  return lock.l_type != F_UNLCK;
}

}  // namespace multiverso
