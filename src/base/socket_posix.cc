#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/descriptor.h"
#include "base/socket.h"

namespace multiverso {
namespace {

// Closes the descriptor and returns -1 if that fails.
int Prepare(int descriptor) {
  if (descriptor < 0) return -1;
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags >= 0 && fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0 &&
      fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0) {
    return descriptor;
  }
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

}  // namespace

int NewSocket(int family, int protocol) {
  return Prepare(OpenAboveStandardStreams([&] { return socket(family, SOCK_STREAM, protocol); }));
}

int AcceptSocket(int listener) {
  return Prepare(OpenAboveStandardStreams([&] { return accept(listener, nullptr, nullptr); }));
}

bool NewPipe(int ends[2]) {
  const StreamNumbersTaken taken;
  if (pipe(ends) != 0) return false;
  ends[0] = Prepare(AboveStandardStreams(ends[0]));
  ends[1] = Prepare(AboveStandardStreams(ends[1]));
  if (ends[0] >= 0 && ends[1] >= 0) return true;
  for (int i = 0; i < 2; ++i) {
    if (ends[i] >= 0) close(ends[i]);
  }
  return false;
}

}  // namespace multiverso
