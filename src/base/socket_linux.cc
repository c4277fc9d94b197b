#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/socket.h"

namespace multiverso {

int NewSocket(int family, int protocol) {
  return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
}

int AcceptSocket(int listener) {
  return accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

bool NewPipe(int ends[2]) { return pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0; }

}  // namespace multiverso
