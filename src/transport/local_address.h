// The addresses of Unix sockets, by which the ranks of a job without MPI meet. On Linux they are in
// the abstract namespace, so there is no file to remove. Elsewhere they are files in /tmp, whatever
// TMPDIR is: all ranks must find the same file, and the path of a socket must be short.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

namespace multiverso {

class LocalAddress {
 public:
  // The name is at most 100 bytes long.
  explicit LocalAddress(const std::string& name);

  bool Connect(int socket) const {
    return connect(socket, reinterpret_cast<const sockaddr*>(&address_), bytes_) == 0;
  }
  // Returns false with errno after a failure. Replaces the file of a process that has ended.
  bool Bind(int socket) const;
  // Returns whether addresses vanish with the process that has bound them, without Remove.
  static bool EndsWithProcess();
  // Removes the file, if there is one. Processes that are connected do not need it.
  void Remove() const;

 private:
  bool TryBind(int socket) const {
    return bind(socket, reinterpret_cast<const sockaddr*>(&address_), bytes_) == 0;
  }

  sockaddr_un address_{};
  socklen_t bytes_ = 0;
};

}  // namespace multiverso
