// Descriptors of files above 2, where the standard streams are.
#pragma once

#include <string>

namespace multiverso {

// A process may start with its standard input, output or error closed, as some ways to start
// daemons do. The system then gives their numbers to the next files, and what any library of the
// process prints would be written into the memory or the messages of the session. So each
// descriptor of this library is opened by these functions, or while the numbers of the streams are
// taken. This is not so on Windows.

// The number of the standard streams, whose descriptors are the first ones.
constexpr int kStreams = 3;

// While an object lives, the numbers of closed standard streams belong to /dev/null.
class StreamNumbersTaken {
 public:
  StreamNumbersTaken();
  ~StreamNumbersTaken();
  StreamNumbersTaken(const StreamNumbersTaken&) = delete;
  StreamNumbersTaken& operator=(const StreamNumbersTaken&) = delete;

 private:
  int taken_[kStreams] = {};
  int count_ = 0;
};

// Returns `descriptor`, or, if it is one of the first three, a copy in its place, which programs
// that this process starts do not inherit. Returns -1 with errno if `descriptor` is -1, or if no
// copy can be made, in which case `descriptor` is closed.
int AboveStandardStreams(int descriptor);

// Returns the descriptor that `open` returns, and -1 with errno after a failure.
template <class Open>
int OpenAboveStandardStreams(const Open& open) {
  // A copy alone would leave a moment in which another thread could print into the file.
  const StreamNumbersTaken taken;
  return AboveStandardStreams(open());
}

// Opens a file as open() does. Programs that this process starts do not inherit it.
int OpenDescriptor(const char* path, int flags, unsigned mode = 0);
// The same in a folder to which others may write: fails if the file, or the folder that has it, is
// a link, which could lead elsewhere.
int OpenWithoutLinks(const std::string& path, int flags, unsigned mode = 0);

}  // namespace multiverso
