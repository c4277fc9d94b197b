#include <sys/mman.h>

#include "memory/segment.h"
#if defined(__APPLE__)
#include <mach/vm_inherit.h>
#endif

namespace multiverso {

bool Segment::CanBeFound() { return false; }

// Anonymous memory of POSIX has names too, and neither locks for presence nor a way to read it.
int Segment::CreateAnonymous(const char* /*name*/) { return -1; }

std::string Segment::PathOf(const SegmentLocator& locator) { return locator.path; }

void Segment::Advise(void* mapping, size_t bytes, PageSize /*pages*/) {
  // A forked child may not use the session, so it does not need to keep the memory alive, nor, on
  // Linux, the lock by which its parent is present.
#if defined(__APPLE__)
  (void)minherit(mapping, bytes, VM_INHERIT_NONE);
#elif defined(MADV_DONTFORK)
  (void)madvise(mapping, bytes, MADV_DONTFORK);
#endif
}

// macOS and some systems without MADV_DONTFORK leave the address free or copy the mapping. Nothing
// else can be there yet: the functions of this library run in the child before the program does.
const int Segment::kReplaces = MAP_FIXED;

void Segment::Interleave() {}

}  // namespace multiverso
