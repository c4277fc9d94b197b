// Segment: a piece of memory, private to this process or shared by the ranks of a node.
//
// Segments are sparse: a page costs memory when it is first touched. A shared segment is a memfd:
// it has no name, it disappears with the last process that maps it, and it does not depend on the
// size of /dev/shm. The other ranks of the node open it through /proc/<pid>/fd. If the kernel has
// no memfd, or if MULTIVERSO_SEGMENTS=file is set because ranks cannot open /proc/<pid>/fd, a
// shared segment is a file (CreateNamedFile) that is unlinked as soon as every rank has mapped it.
// On other POSIX systems a shared segment is always such a file. Windows has only private segments.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace multiverso {

// What other ranks of the node need to open a shared segment. Ranks exchange it as raw bytes.
struct SegmentLocator {
  int64_t bytes = 0;
  int64_t pid = 0;  // the creator's; its descriptor is opened unless `path` is set
  int32_t fd = -1;  // the descriptor in the creator
  int32_t unused = 0;
  char path[104] = {};  // the path if the segment is a file, else empty
};

// Huge pages are used where the kernel provides them. They make dense access faster, but memory of
// which few bytes are touched takes up to 512 times as much.
enum class PageSize { kSmall, kHuge };
constexpr int64_t kHugePageBytes = int64_t{2} << 20;
// Smaller mappings stay in small pages, since much of their last huge page would be wasted.
constexpr int64_t kHugePageThreshold = 2 * kHugePageBytes;

// Owns one mapping and, until Seal(), the descriptor behind it. A segment is not thread-safe.
class Segment {
 public:
  Segment() = default;
  ~Segment() { Release(); }
  Segment(Segment&& other) noexcept { *this = std::move(other); }
  Segment& operator=(Segment&& other) noexcept;

  // Creates zero-filled memory for this process alone. Returns MemoryError if this machine does not
  // have `bytes` of memory. Another `spare` bytes follow that are not checked: the caller touches
  // few of them, or checks before it touches them.
  static Result<Segment> CreatePrivate(int64_t bytes, int64_t spare = 0,
                                       PageSize pages = PageSize::kHuge);
  // Creates zero-filled memory that other ranks of the node can open by its locator. Returns
  // UnsupportedError on Windows.
  static Result<Segment> CreateShared(int64_t bytes, int64_t spare = 0,
                                      PageSize pages = PageSize::kHuge);
  // Does the same for a table. The memory has another name, so that a process which looks for
  // sessions need not open it (node/find_sessions.h).
  static Result<Segment> CreateSharedTable(int64_t bytes, int64_t spare, PageSize pages);
  static Result<Segment> OpenShared(const SegmentLocator& locator);
  // OpenFileSegment (memory/file_segment.h) describes this function.
  static Result<Segment> OpenFile(const std::string& path, int64_t bytes, int64_t least_bytes);

  // Returns whether processes that are not ranks can find the shared segments of this system, which
  // joining an elastic session, readers and observers require (node/find_sessions.h).
  static bool CanBeFound();
  // Maps an existing segment of unknown size. `path` is a descriptor of another process,
  // /proc/<pid>/fd/<fd>. Unless it is writable, this process cannot change it.
  static Result<Segment> OpenFound(const std::string& path, bool is_writable = false);

  bool is_mapped() const { return data_ != nullptr; }
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int fd() const { return fd_; }
  SegmentLocator locator() const;

  // Spreads the pages over the NUMA nodes of the machine, for all processes that map the segment.
  // Call it before any page is touched. It has no effect on a machine with one NUMA node, where the
  // system forbids it, and on systems other than Linux.
  void Interleave();

  // Removes the segment's name, if it has one. Call it when every rank has mapped the segment.
  void Unlink();
  // Unlinks the segment and closes its descriptor. Call it when no rank will open the segment or
  // query presence on it any more.
  void Seal();

  // In a forked child, to which the system does not copy a mapping: puts zeros in its place, which
  // the child may read and write, and closes the child's copy of the descriptor. Pointers into the
  // segment stay valid, and the child can do nothing to the memory of its parent. It only makes
  // calls that are allowed in the child of a process with several threads. Does nothing on Windows.
  void ForgetInChild();

 private:
  static Result<Segment> CreateNamed(const char* name, int64_t bytes, int64_t spare,
                                     PageSize pages);
  Status Map(int64_t bytes, bool shared, PageSize pages, bool is_writable = true);
  void Unmap();
  void Release();

  // What differs between Linux and other POSIX systems. CreateAnonymous returns a descriptor, or -1
  // without such memory. Advise gives the system hints about a mapping. kReplaces is the flag with
  // which zeros are mapped in a child: where the system copies a mapping to the child, it replaces
  // the copy; elsewhere the memory must not be in use for something else.
  static int CreateAnonymous(const char* name);
  static std::string PathOf(const SegmentLocator& locator);
  static void Advise(void* mapping, size_t bytes, PageSize pages);
  static const int kReplaces;

  char* data_ = nullptr;
  int64_t bytes_ = 0;
  int fd_ = -1;
  std::string path_;  // of a file that this process created and has not unlinked yet
};

}  // namespace multiverso
