// Segment: a piece of memory, private to this process or shared by the ranks of a node.
//
// Segments are sparse (a page costs memory when it is first touched) and leave nothing behind: a
// shared one is a memfd, which has no name and disappears with the last process that maps it, and
// which does not depend on the size of /dev/shm. The other ranks of the node open it through
// /proc/<pid>/fd. Where that cannot be done, MULTIVERSO_SEGMENTS=file makes it a file (in
// /dev/shm or else the temporary directory) that is unlinked as soon as everybody has mapped it.
// On Windows it is a temporary file that disappears with its last handle.
#ifndef MULTIVERSO_MEMORY_SEGMENT_H_
#define MULTIVERSO_MEMORY_SEGMENT_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace multiverso {

// What another rank of the node needs to open a segment. Travels between ranks as bytes.
struct SegmentLocator {
  int64_t bytes = 0;
  int64_t pid = 0;  // the creator, whose descriptor is opened, unless path is set
  int32_t fd = -1;  // the descriptor in the creator
  int32_t unused = 0;
  char path[104] = {};  // of a named segment, else empty
};

// Owns one mapping and, until Seal(), the descriptor behind it. Movable; not thread-safe itself.
class Segment {
 public:
  Segment() = default;
  ~Segment() { Release(); }
  Segment(Segment&& other) noexcept { *this = std::move(other); }
  Segment& operator=(Segment&& other) noexcept;

  // Zero-filled memory of this process alone, in huge pages where the kernel gives them.
  // MemoryError if this machine does not have that much. `spare` bytes more are only address space,
  // of which little will ever be touched.
  static Result<Segment> CreatePrivate(int64_t bytes, int64_t spare = 0);
  // Zero-filled memory that other ranks of the node can open by its locator.
  static Result<Segment> CreateShared(int64_t bytes, int64_t spare = 0);
  static Result<Segment> OpenShared(const SegmentLocator& locator);

  bool is_mapped() const { return data_ != nullptr; }
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int fd() const { return fd_; }  // on Windows the number of a handle
  SegmentLocator locator() const;

  // Every rank has mapped it: removes its name, if it has one.
  void Unlink();
  // The same, and closes the descriptor: nobody will open it or ask for presence on it.
  void Seal();

 private:
  Status Map(int64_t bytes, bool shared);
  void Unmap();
  void Release();

  char* data_ = nullptr;
  int64_t bytes_ = 0;
  int fd_ = -1;
  bool is_view_ = false;  // of a file, on Windows, where that is given back in another way
  std::string path_;      // of a named segment that this process created and has not yet unlinked
};

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_SEGMENT_H_
