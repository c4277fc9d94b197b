#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/descriptor.h"

namespace multiverso {
namespace {

constexpr char kNullDevice[] = "/dev/null";

bool IsNullDevice(int descriptor) {
  struct stat null{};
  struct stat file{};
  return stat(kNullDevice, &null) == 0 && fstat(descriptor, &file) == 0 &&
         file.st_dev == null.st_dev && file.st_ino == null.st_ino;
}

}  // namespace

// The system gives out the lowest free number, so a higher one shows that the numbers of the
// streams are all taken.
StreamNumbersTaken::StreamNumbersTaken() {
  bool any_closed = false;
  for (int stream = 0; stream < kStreams; ++stream) {
    any_closed = any_closed || fcntl(stream, F_GETFD) < 0;
  }
  while (any_closed && count_ < kStreams) {
    const int descriptor = open(kNullDevice, O_RDWR | O_CLOEXEC);
    if (descriptor >= kStreams) close(descriptor);
    if (descriptor < 0 || descriptor >= kStreams) break;
    taken_[count_++] = descriptor;
  }
}

StreamNumbersTaken::~StreamNumbersTaken() {
  const int error = errno;  // of the call that this object has protected
  while (count_ > 0) {
    const int stream = taken_[--count_];
    // The program may have opened the stream in the meantime, for instance with dup2.
    if (IsNullDevice(stream)) close(stream);
  }
  errno = error;
}

int AboveStandardStreams(int descriptor) {
  if (descriptor < 0 || descriptor >= kStreams) return descriptor;
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, kStreams);
  const int error = errno;
  close(descriptor);
  errno = error;
  return moved;
}

int OpenDescriptor(const char* path, int flags, unsigned mode) {
  return OpenAboveStandardStreams(
      [&] { return open(path, flags | O_CLOEXEC, static_cast<mode_t>(mode)); });
}

int OpenWithoutLinks(const std::string& path, int flags, unsigned mode) {
#if defined(O_PATH)
  constexpr int kToLookUp = O_PATH;
#else
  constexpr int kToLookUp = O_RDONLY;
#endif
  const size_t slash = path.rfind('/');
  std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  // With a slash at its end, a path leads through a link.
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const int parent = OpenDescriptor(folder.c_str(), kToLookUp | O_DIRECTORY | O_NOFOLLOW);
  if (parent < 0) return -1;
  const int file = OpenAboveStandardStreams([&] {
    return openat(parent, path.c_str() + (slash == std::string::npos ? 0 : slash + 1),
                  flags | O_NOFOLLOW | O_CLOEXEC, static_cast<mode_t>(mode));
  });
  const int error = errno;
  close(parent);
  errno = error;
  return file;
}

}  // namespace multiverso
