#include "base/supported.h"
#include "memory/file_segment.h"

namespace multiverso {

Result<Segment> Segment::OpenFile(const std::string& /*path*/, int64_t /*bytes*/,
                                  int64_t /*least_bytes*/) {
  return CheckSupported({Feature::kOnDisk, Feature::kNotLinux});
}
Result<Segment> OpenFileSegment(const std::string& path, int64_t bytes, int64_t least_bytes) {
  return Segment::OpenFile(path, bytes, least_bytes);
}
int64_t BytesOnDisk(const Segment& /*file*/) { return 0; }
Status LockFile(const Segment& /*file*/, const std::string& /*path*/) { return Status::Ok(); }
Status CheckInPlace(const Segment& /*file*/, const std::string& /*path*/) { return Status::Ok(); }
Status ReserveOnDisk(const Segment& /*file*/, int64_t /*offset*/, int64_t /*bytes*/) {
  return Status::Ok();
}
void ExpectRandomUse(const Segment& /*file*/) {}
void ReadAhead(const Segment& /*file*/, int64_t /*offset*/, int64_t /*bytes*/) {}
Status WriteBack(const Segment& /*file*/) { return Status::Ok(); }

}  // namespace multiverso
