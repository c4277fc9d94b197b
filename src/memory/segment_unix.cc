#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/checked.h"
#include "base/descriptor.h"
#include "base/text.h"
#include "memory/limits.h"
#include "memory/named_file.h"
#include "memory/segment.h"

namespace multiverso {
namespace {

Status MemoryError(const char* call, int64_t bytes) {
  return Status(Code::kMemory, StrCat(call, " of ", SizeText(bytes), ": ", std::strerror(errno)));
}

bool FilesAreRequested() {
  const char* setting = std::getenv("MULTIVERSO_SEGMENTS");
  return setting != nullptr && std::strcmp(setting, "file") == 0;
}

}  // namespace

Result<Segment> Segment::CreateShared(int64_t bytes, int64_t spare, PageSize pages) {
  return CreateNamed("multiverso", bytes, spare, pages);
}

Result<Segment> Segment::CreateSharedTable(int64_t bytes, int64_t spare, PageSize pages) {
  return CreateNamed("multiverso-table", bytes, spare, pages);
}

Result<Segment> Segment::CreateNamed(const char* name, int64_t bytes, int64_t spare,
                                     PageSize pages) {
  MV_RETURN_IF_NOT_OK(CheckFitsInMemory(bytes));
  const int64_t total = bytes + spare;
  Segment segment;
  if (!FilesAreRequested()) segment.fd_ = CreateAnonymous(name);
  if (segment.fd_ < 0) {
    Result<NamedFile> file = CreateNamedFile(bytes);
    if (!file.ok()) return file.status();
    segment.fd_ = file->fd;
    segment.path_ = file->path;
    if (segment.path_.size() >= sizeof(SegmentLocator::path)) {
      return Status(Code::kMemory, StrCat("the path of the shared segment ", segment.path_,
                                          " is too long: set TMPDIR to a shorter folder"));
    }
  }
  if (ftruncate(segment.fd_, total) != 0) return MemoryError("ftruncate", total);
  MV_RETURN_IF_NOT_OK(segment.Map(total, /*shared=*/true, pages));
  return segment;
}

Result<Segment> Segment::OpenShared(const SegmentLocator& locator) {
  const bool is_named = locator.path[0] != '\0';
  const std::string path = PathOf(locator);
  Segment segment;
  segment.fd_ = OpenDescriptor(path.c_str(), O_RDWR | (is_named ? O_NOFOLLOW : 0));
  if (segment.fd_ < 0) {
    const int error = errno;
    const std::string text =
        StrCat("cannot open the shared segment ", path, ": ", std::strerror(error));
    if (is_named || (error != EACCES && error != EPERM)) return Status(Code::kMemory, text);
    return Status(Code::kUnsupported,
                  StrCat(text, ": process ", locator.pid,
                         " lets no other process use its files, "
                         "because it belongs to another user or cannot be dumped "
                         "(PR_SET_DUMPABLE): set MULTIVERSO_SEGMENTS=file on all ranks"));
  }
  struct stat info{};
  if (fstat(segment.fd_, &info) != 0 || info.st_size < locator.bytes) {
    return Status(Code::kMemory, StrCat("the shared segment ", path, " has ", info.st_size,
                                        " bytes, expected ", locator.bytes));
  }
  MV_RETURN_IF_NOT_OK(segment.Map(locator.bytes, /*shared=*/true, PageSize::kHuge));
  return segment;
}

Result<Segment> Segment::OpenFound(const std::string& path, bool is_writable) {
  Segment segment;
  // A pipe at the path must not block this call.
  const int flags = (is_writable ? O_RDWR : O_RDONLY) | O_NONBLOCK;
  segment.fd_ = OpenDescriptor(path.c_str(), flags);
  struct stat info{};
  if (segment.fd_ < 0 || fstat(segment.fd_, &info) != 0) {
    return Status(Code::kMemory,
                  StrCat("cannot open the shared segment ", path, ": ", std::strerror(errno)));
  }
  MV_RETURN_IF_NOT_OK(segment.Map(info.st_size, /*shared=*/true, PageSize::kHuge, is_writable));
  return segment;
}

Status Segment::Map(int64_t bytes, bool shared, PageSize pages, bool is_writable) {
  const bool huge = pages == PageSize::kHuge && bytes >= kHugePageThreshold;
  int64_t reserved = 0;
  if (!CheckedAdd(RoundUp(bytes, PageBytes()), huge ? kHugePageBytes : 0, &reserved)) {
    return Status(Code::kMemory, StrCat("cannot map ", SizeText(bytes)));
  }
  // More address space is reserved first, since huge pages need an address that is a multiple of
  // their size.
  const auto length = static_cast<size_t>(reserved);
  void* area = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) return MemoryError("mmap", bytes);
  auto start = reinterpret_cast<uintptr_t>(area);
  const uintptr_t aligned =
      huge ? (start + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes : start;
  const auto mapped = static_cast<size_t>(RoundUp(bytes, PageBytes()));
  const int flags = MAP_FIXED | MAP_NORESERVE | (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
  void* mapping =
      mmap(reinterpret_cast<void*>(aligned), mapped,
           is_writable ? PROT_READ | PROT_WRITE : PROT_READ, flags, shared ? fd_ : -1, 0);
  if (mapping == MAP_FAILED) {
    const Status status = MemoryError("mmap", bytes);
    munmap(area, length);
    return status;
  }
  // The alignment left address space unused on both sides, which is released.
  if (aligned > start) munmap(area, aligned - start);
  const uintptr_t end = aligned + mapped;
  if (start + length > end) munmap(reinterpret_cast<void*>(end), start + length - end);
  Advise(mapping, mapped, pages);
  data_ = static_cast<char*>(mapping);
  bytes_ = bytes;
  return Status::Ok();
}

SegmentLocator Segment::locator() const {
  SegmentLocator locator;
  locator.bytes = bytes_;
  locator.pid = getpid();
  locator.fd = fd_;
  CopyText(locator.path, path_);
  return locator;
}

void Segment::Unlink() {
  if (!path_.empty()) unlink(path_.c_str());
  path_.clear();
}

void Segment::Seal() {
  Unlink();
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void Segment::ForgetInChild() {
  if (data_ == nullptr) return;
  // Memory that can be written may need a reserve that the system does not have.
  for (const int access : {PROT_READ | PROT_WRITE, PROT_READ}) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | kReplaces;
    const auto length = static_cast<size_t>(RoundUp(bytes_, PageBytes()));
    void* const zeros = mmap(data_, length, access, flags, -1, 0);
    if (zeros == data_) break;
    // An old kernel does not know the flag, and has used another address.
    if (zeros != MAP_FAILED) munmap(zeros, length);
  }
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void Segment::Unmap() { munmap(data_, static_cast<size_t>(RoundUp(bytes_, PageBytes()))); }

}  // namespace multiverso
