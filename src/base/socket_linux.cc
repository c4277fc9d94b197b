#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/socket.h"

namespace multiverso {

int NewSocket(int family, int protocol) {
  return OpenAboveStandardStreams(
      [&] { return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol); });
}

int AcceptSocket(int listener) {
  return OpenAboveStandardStreams(
      [&] { return accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
}

bool NewPipe(int ends[2]) {
  const StreamNumbersTaken taken;
  if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) return false;
  ends[0] = AboveStandardStreams(ends[0]);
  ends[1] = AboveStandardStreams(ends[1]);
  if (ends[0] >= 0 && ends[1] >= 0) return true;
  for (int i = 0; i < 2; ++i) {
    if (ends[i] >= 0) close(ends[i]);
  }
  return false;
}

}  // namespace multiverso
