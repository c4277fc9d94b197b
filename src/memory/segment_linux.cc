#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/descriptor.h"
#include "base/text.h"
#include "memory/limits.h"
#include "memory/segment.h"

namespace multiverso {

bool Segment::CanBeFound() { return true; }

int Segment::CreateAnonymous(const char* name) {
  const int fd = OpenAboveStandardStreams([name] { return memfd_create(name, MFD_CLOEXEC); });
  // The kernel creates it for everyone, and only the mode of /proc/<pid>/fd would keep others out.
  if (fd < 0 || fchmod(fd, 0600) == 0) return fd;
  close(fd);
  return -1;
}

std::string Segment::PathOf(const SegmentLocator& locator) {
  return locator.path[0] != '\0' ? std::string(locator.path)
                                 : StrCat("/proc/", locator.pid, "/fd/", locator.fd);
}

void Segment::Advise(void* mapping, size_t bytes, PageSize pages) {
  // MADV_HUGEPAGE is a hint. A kernel that ignores the hint makes the segment slower, not wrong.
  if (pages == PageSize::kHuge && static_cast<int64_t>(bytes) >= kHugePageThreshold) {
    madvise(mapping, bytes, MADV_HUGEPAGE);
  }
  if (pages == PageSize::kSmall) madvise(mapping, bytes, MADV_NOHUGEPAGE);
  // A forked child may not use the session, so it does not need to keep the memory alive.
  madvise(mapping, bytes, MADV_DONTFORK);
}

const int Segment::kReplaces = MAP_FIXED_NOREPLACE;

void Segment::Interleave() {
  // The numbers and the size of the set of nodes are those of linux/mempolicy.h.
  constexpr int kInterleavePolicy = 3;
  constexpr unsigned kAllowedNodes = 4;
  constexpr unsigned long kMaxNodes = 1024;  // NOLINT: the type that the system calls expect
  unsigned long nodes[kMaxNodes / (8 * sizeof(unsigned long))] = {};  // NOLINT
  if (syscall(SYS_get_mempolicy, nullptr, nodes, kMaxNodes, nullptr, kAllowedNodes) != 0) return;
  int64_t num_nodes = 0;
  for (const auto word : nodes) num_nodes += __builtin_popcountl(word);
  if (num_nodes < 2) return;
  (void)syscall(SYS_mbind, data_, RoundUp(bytes_, PageBytes()), kInterleavePolicy, nodes, kMaxNodes,
                0);
}

}  // namespace multiverso
