#include "base/text.h"
#include "base/windows.h"
#include "memory/segment.h"

// On Windows a session has one rank, so its memory is private.

namespace multiverso {
namespace {

Status NotShared() { return Status(Code::kUnsupported, "shared segments need Linux"); }

}  // namespace

Result<Segment> Segment::CreateSharedTable(int64_t bytes, int64_t spare, PageSize pages) {
  return CreateShared(bytes, spare, pages);
}

Result<Segment> Segment::CreateShared(int64_t /*bytes*/, int64_t /*spare*/, PageSize /*pages*/) {
  return NotShared();
}
Result<Segment> Segment::OpenShared(const SegmentLocator& /*locator*/) { return NotShared(); }
Result<Segment> Segment::OpenFound(const std::string& /*path*/, bool /*is_writable*/) {
  return NotShared();
}
bool Segment::CanBeFound() { return false; }
SegmentLocator Segment::locator() const { return SegmentLocator(); }
void Segment::Interleave() {}
void Segment::Unlink() {}
void Segment::Seal() {}
void Segment::ForgetInChild() {}

Status Segment::Map(int64_t bytes, bool /*shared*/, PageSize /*pages*/, bool /*is_writable*/) {
  data_ = static_cast<char*>(
      VirtualAlloc(nullptr, static_cast<size_t>(bytes), MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
  if (data_ == nullptr) {
    return Status(Code::kMemory, StrCat("cannot allocate ", SizeText(bytes), ": error ",
                                        GetLastError(), " of Windows"));
  }
  bytes_ = bytes;
  return Status::Ok();
}

void Segment::Unmap() { VirtualFree(data_, 0, MEM_RELEASE); }

}  // namespace multiverso
