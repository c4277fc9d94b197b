#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "base/descriptor.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "memory/file_segment.h"
#include "memory/limits.h"

namespace multiverso {
namespace {

// The file systems that overwrite the blocks of a file in place, by their numbers in
// linux/magic.h. Files of an overlay, the file system of containers, lie on another one.
constexpr uint32_t kInPlace[] = {0xEF53 /* ext4 */, 0x58465342 /* XFS */, 0x01021994 /* tmpfs */,
                                 0x794C7630 /* overlay */};

Status Failure(const std::string& path, const char* action) {
  return Status(Code::kCheckpointIo, StrCat(path, ": ", action, ": ", std::strerror(errno)));
}

Status CheckFile(int fd, const std::string& path) {
  struct stat info{};
  struct statfs system{};
  if (fstat(fd, &info) != 0 || fstatfs(fd, &system) != 0)
    return Failure(path, "cannot be examined");
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0 ||
      info.st_nlink > 1) {
    return Status(Code::kValue, StrCat("backing: expected a file of this user that nobody else may "
                                       "change or read, and that has no other name, received ",
                                       path));
  }
  const auto type = static_cast<uint32_t>(system.f_type);
  if (std::find(std::begin(kInPlace), std::end(kInPlace), type) == std::end(kInPlace)) {
    return Status(Code::kUnsupported,
                  StrCat("backing: expected a folder on ext4, XFS or tmpfs, where room on the disk "
                         "can be reserved, received ",
                         path, " on a file system of type 0x", std::hex, type));
  }
  return Status::Ok();
}

}  // namespace

Result<Segment> Segment::OpenFile(const std::string& path, int64_t bytes, int64_t least_bytes) {
  Segment segment;
  segment.fd_ = OpenWithoutLinks(path, O_RDWR | (least_bytes == 0 ? O_CREAT : 0) | O_NONBLOCK,
                                 S_IRUSR | S_IWUSR);
  if (segment.fd_ < 0) return Failure(path, "cannot be opened");
  MV_RETURN_IF_NOT_OK(CheckFile(segment.fd_, path));
  struct stat info{};
  if (fstat(segment.fd_, &info) != 0) return Failure(path, "cannot be examined");
  const bool fits =
      least_bytes == 0 ? info.st_size == 0 || info.st_size == bytes : info.st_size >= least_bytes;
  if (!fits) {
    return Status(Code::kCheckpointCorrupt,
                  StrCat(path, ": expected ", least_bytes == 0 ? bytes : least_bytes,
                         " bytes, received ", info.st_size));
  }
  if (ftruncate(segment.fd_, bytes) != 0) return Failure(path, "cannot be resized");
  MV_RETURN_IF_NOT_OK(segment.Map(bytes, /*shared=*/true, PageSize::kSmall));
  return segment;
}

Result<Segment> OpenFileSegment(const std::string& path, int64_t bytes, int64_t least_bytes) {
  return Segment::OpenFile(path, bytes, least_bytes);
}

int64_t BytesOnDisk(const Segment& file) {
  constexpr int64_t kBlock = 512;  // the unit of st_blocks
  struct stat info{};
  return fstat(file.fd(), &info) == 0 ? info.st_blocks * kBlock : 0;
}

Status LockFile(const Segment& file, const std::string& path) {
  if (flock(file.fd(), LOCK_EX | LOCK_NB) == 0) return Status::Ok();
  return Status(Code::kState,
                StrCat("backing: another job uses ", path, ", or another table of this session"));
}

Status CheckInPlace(const Segment& file, const std::string& path) {
  struct stat here{};
  struct stat opened{};
  if (fstat(file.fd(), &opened) != 0) return Failure(path, "cannot be examined");
  const int error = lstat(path.c_str(), &here) == 0 ? 0 : errno;
  if (error == 0 && here.st_dev == opened.st_dev && here.st_ino == opened.st_ino) {
    return Status::Ok();
  }
  return Status(Code::kCheckpointIo,
                StrCat(path, ": the file has been ", error == 0 ? "replaced" : "removed or moved",
                       " while a table used it, so the rows that are in memory end with this "
                       "session: save a checkpoint before the end, and choose a backing that "
                       "nothing cleans, unlike /tmp"),
                FileFault{path, error, 0});
}

Status ReserveOnDisk(const Segment& file, int64_t offset, int64_t bytes) {
  const int64_t first = offset / PageBytes() * PageBytes();
  const int64_t length = std::min(RoundUp(offset + bytes, PageBytes()), file.bytes()) - first;
  if (bytes == 0) return Status::Ok();
  int error = 0;
  do {
    error = MV_FAILPOINT("file_segment.reserve")          ? ENOSPC
            : fallocate(file.fd(), 0, first, length) == 0 ? 0
                                                          : errno;
  } while (error == EINTR);
  if (error == 0) return Status::Ok();
  if (error != ENOSPC && error != EDQUOT && error != EFBIG) {
    return Status(Code::kCheckpointIo, StrCat("cannot reserve ", SizeText(length),
                                              " on the disk: ", std::strerror(error)));
  }
  struct statvfs disk{};
  const bool is_known = fstatvfs(file.fd(), &disk) == 0;
  const auto free = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  return Status(Code::kMemory, StrCat("cannot reserve ", SizeText(length), " on the disk",
                                      is_known ? ", where " : "", is_known ? SizeText(free) : "",
                                      is_known ? " are free" : "", ": ", std::strerror(error)));
}

void ExpectRandomUse(const Segment& file) {
  // Otherwise the kernel reads many neighbours with each page.
  madvise(file.data(), static_cast<size_t>(file.bytes()), MADV_RANDOM);
}

void ReadAhead(const Segment& file, int64_t offset, int64_t bytes) {
  const int64_t first = offset / PageBytes() * PageBytes();
  madvise(file.data() + first, static_cast<size_t>(offset + bytes - first), MADV_WILLNEED);
}

Status WriteBack(const Segment& file) {
  const bool fails = MV_FAILPOINT("file_segment.write_back");
  if (!fails && fsync(file.fd()) == 0) return Status::Ok();
  return Status(Code::kCheckpointIo,
                StrCat("cannot write a table to its disk: ", std::strerror(fails ? EIO : errno)));
}

}  // namespace multiverso
