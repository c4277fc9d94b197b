#include "memory/segment.h"

#include <utility>

#include "memory/limits.h"

namespace multiverso {

Segment& Segment::operator=(Segment&& other) noexcept {
  if (this != &other) {
    Release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::exchange(other.path_, std::string());
  }
  return *this;
}

Result<Segment> Segment::CreatePrivate(int64_t bytes, int64_t spare, PageSize pages) {
  MV_RETURN_IF_NOT_OK(CheckFitsInMemory(bytes));
  Segment segment;
  MV_RETURN_IF_NOT_OK(segment.Map(bytes + spare, /*shared=*/false, pages));
  return segment;
}

void Segment::Release() {
  if (data_ != nullptr) Unmap();
  data_ = nullptr;
  bytes_ = 0;
  Seal();
}

}  // namespace multiverso
