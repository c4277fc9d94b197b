#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/descriptor.h"

namespace multiverso {

StreamNumbersTaken::StreamNumbersTaken() {
  bool any_closed = false;
  for (int stream = 0; stream < kStreams; ++stream) {
    any_closed = any_closed || fcntl(stream, F_GETFD) < 0;
  }
  while (any_closed && count_ < kStreams) {
    const int descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (descriptor >= kStreams) close(descriptor);
    if (descriptor < 0 || descriptor >= kStreams) break;
    taken_[count_++] = descriptor;
  }
}

StreamNumbersTaken::~StreamNumbersTaken() {
  const int error = errno;  // of the call that this object has protected
  while (count_ > 0) close(taken_[--count_]);
  errno = error;
}

int AboveStandardStreams(int descriptor) {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(descriptor);
  errno = error;
  return moved;
}

int OpenDescriptor(const char* path, int flags, unsigned mode) {
  return OpenAboveStandardStreams(
      [&] { return open(path, flags | O_CLOEXEC, static_cast<mode_t>(mode)); });
}

}  // namespace multiverso
