#include "base/process.h"
#include "base/text.h"
#include "base/windows.h"
#include "memory/limits.h"
#include "memory/named_file.h"
#include "memory/segment.h"

namespace multiverso {
namespace {

Status MemoryError(const char* call, int64_t bytes) {
  return Status(Code::kMemory,
                StrCat(call, " of ", SizeText(bytes), ": ", windows::ErrorText(GetLastError())));
}

}  // namespace

Result<Segment> Segment::CreateShared(int64_t bytes, int64_t spare, PageSize pages) {
  MV_RETURN_IF_NOT_OK(CheckFitsInMemory(bytes));
  Result<NamedFile> file = CreateNamedFile(bytes);
  if (!file.ok()) return file.status();
  Segment segment;
  segment.fd_ = file->fd;
  segment.path_ = file->path;
  if (segment.path_.size() >= sizeof(SegmentLocator::path)) {
    return Status(Code::kMemory, StrCat("the path of the shared segment ", segment.path_,
                                        " is too long: set TMP to a shorter folder"));
  }
  MV_RETURN_IF_NOT_OK(segment.Map(bytes + spare, /*shared=*/true, pages));
  return segment;
}

Result<Segment> Segment::OpenShared(const SegmentLocator& locator) {
  Segment segment;
  // Closing the creator's handle marks the file for deletion, which other handles have to allow.
  HANDLE const file =
      CreateFileW(windows::ToUtf16(locator.path).c_str(), GENERIC_READ | GENERIC_WRITE,
                  FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr, OPEN_EXISTING,
                  FILE_ATTRIBUTE_TEMPORARY, nullptr);
  if (file == INVALID_HANDLE_VALUE) {
    return Status(Code::kMemory, StrCat("cannot open the shared segment ", locator.path, ": ",
                                        windows::ErrorText(GetLastError())));
  }
  segment.fd_ = windows::NumberOf(file);
  LARGE_INTEGER size{};
  if (GetFileSizeEx(file, &size) == 0 || size.QuadPart < locator.bytes) {
    return Status(Code::kMemory, StrCat("the shared segment ", locator.path, " has ", size.QuadPart,
                                        " bytes, expected ", locator.bytes));
  }
  MV_RETURN_IF_NOT_OK(segment.Map(locator.bytes, /*shared=*/true, PageSize::kSmall));
  return segment;
}

bool Segment::CanBeFound() { return false; }

Result<Segment> Segment::OpenFound(const std::string& /*path*/, bool /*is_writable*/) {
  return Status(Code::kUnsupported, "readers need Linux");
}

Status Segment::Map(int64_t bytes, bool shared, PageSize /*pages*/, bool /*is_writable*/) {
  void* address = nullptr;
  if (!shared) {
    address =
        VirtualAlloc(nullptr, static_cast<size_t>(bytes), MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    if (address == nullptr) return MemoryError("VirtualAlloc", bytes);
  } else {
    // This fills the file up to its new size with zeros.
    HANDLE const mapping =
        CreateFileMappingW(windows::HandleOf(fd_), nullptr, PAGE_READWRITE,
                           static_cast<DWORD>(bytes >> 32), static_cast<DWORD>(bytes), nullptr);
    if (mapping == nullptr) return MemoryError("CreateFileMapping", bytes);
    address = MapViewOfFile(mapping, FILE_MAP_ALL_ACCESS, 0, 0, static_cast<size_t>(bytes));
    const DWORD error = GetLastError();
    CloseHandle(mapping);  // the view keeps the mapping open
    SetLastError(error);
    if (address == nullptr) return MemoryError("MapViewOfFile", bytes);
    is_view_ = true;
  }
  data_ = static_cast<char*>(address);
  bytes_ = bytes;
  return Status::Ok();
}

void Segment::Unmap() {
  if (is_view_) {
    UnmapViewOfFile(data_);
  } else {
    VirtualFree(data_, 0, MEM_RELEASE);
  }
}

void Segment::Interleave() {}

SegmentLocator Segment::locator() const {
  SegmentLocator locator;
  locator.bytes = bytes_;
  locator.pid = ProcessId();
  locator.fd = fd_;
  CopyText(locator.path, path_);
  return locator;
}

// The file needs no unlinking, because Windows deletes it with its last handle.
void Segment::Unlink() {}

void Segment::ForgetInChild() {}

void Segment::Seal() {
  if (fd_ >= 0) CloseHandle(windows::HandleOf(fd_));
  fd_ = -1;
  path_.clear();
}

}  // namespace multiverso
