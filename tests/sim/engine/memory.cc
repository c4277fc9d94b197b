#include "engine/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "engine/raw_call.h"
#include "engine/reordering.h"

namespace sim {
namespace {

// The library maps memory itself; what malloc maps is not here.
struct Mapping {
  uintptr_t end;
  int rank;
  uint64_t file;  // 0 for memory that shows none
  uint64_t offset;
};
std::map<uintptr_t, Mapping> mappings;  // by their beginnings

// Forgets what is mapped in a range, and splits mappings that reach out of it.
void Forget(uintptr_t begin, uintptr_t end) {
  auto found = mappings.lower_bound(begin);
  if (found != mappings.begin() && std::prev(found)->second.end > begin) --found;
  while (found != mappings.end() && found->first < end) {
    const auto [start, mapping] = *found;
    found = mappings.erase(found);
    if (start < begin) {
      mappings[start] = Mapping{begin, mapping.rank, mapping.file, mapping.offset};
    }
    if (mapping.end > end) {
      mappings[end] =
          Mapping{mapping.end, mapping.rank, mapping.file, mapping.offset + (end - start)};
    }
  }
}

uint64_t RoundToPages(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

// Returns a number that no other open file has, which is not 0.
uint64_t NumberOf(int fd) {
  struct stat info{};
  if (RawCall(SYS_fstat, fd, reinterpret_cast<long>(&info)) != 0) return 0;
  return (info.st_ino << 16 ^ info.st_dev) + 1;
}

void Start() { mappings.clear(); }

void Release(int rank) {
  for (auto it = mappings.begin(); it != mappings.end();) {
    if (it->second.rank != rank) {
      ++it;
      continue;
    }
    (void)RawCall(SYS_munmap, it->first, it->second.end - it->first);
    it = mappings.erase(it);
  }
}

void Count(int rank, Holdings* held) {
  for (const auto& [start, mapping] : mappings) held->mappings += mapping.rank == rank ? 1 : 0;
}

}  // namespace

const Seam kMemory{Start, Release, Count};

Key KeyOfWord(const void* word) {
  const auto address = reinterpret_cast<uintptr_t>(word);
  auto found = mappings.upper_bound(address);
  if (found != mappings.begin()) {
    --found;
    const Mapping& mapping = found->second;
    if (address < mapping.end && mapping.file != 0) {
      return Key{Waits::kFile, mapping.file, mapping.offset + (address - found->first)};
    }
  }
  return KeyOf(Waits::kWord, word);
}

}  // namespace sim

using namespace sim;  // NOLINT: the functions below replace those of the C library

extern "C" {

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if (IsInFiber() && current->rank->refused_mapping > 0 && --current->rank->refused_mapping == 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  const long result =
      RawCall(SYS_mmap, reinterpret_cast<long>(address), bytes, protection, flags, fd, offset);
  if (result == -1) return MAP_FAILED;
  if (IsInFiber()) {
    const bool shows_file = (flags & MAP_SHARED) != 0 && (flags & MAP_ANONYMOUS) == 0;
    const auto begin = static_cast<uintptr_t>(result);
    const uintptr_t end = begin + RoundToPages(bytes);
    Forget(begin, end);
    mappings[begin] =
        Mapping{end, CurrentRank(), shows_file ? NumberOf(fd) : 0, static_cast<uint64_t>(offset)};
  }
  return reinterpret_cast<void*>(result);
}

// The linker gives calls of memcpy to this function. Where stores are points, there are some in the
// middle of a copy of shared memory, too.
void* __real_memcpy(void* to, const void* from, size_t bytes);   // NOLINT: the linker's name
void* __wrap_memcpy(void* to, const void* from, size_t bytes) {  // NOLINT
  // CopyBytes divides some copies, at multiples of this, by addresses that differ between runs.
  constexpr size_t kPiece = 32;
  const bool is_whole =
      quiet > 0 || !point_state.counts_writes ||
      (KeyOfWord(from).kind != Waits::kFile && KeyOfWord(to).kind != Waits::kFile);
  if (is_whole) return __real_memcpy(to, from, bytes);
  for (size_t done = 0; done < bytes; done += kPiece) {
    __real_memcpy(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
                  std::min(kPiece, bytes - done));
    PassPointOfMemory();
  }
  return to;
}

int munmap(void* address, size_t bytes) noexcept {
  OrderMemory();
  if (!mappings.empty()) {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    Forget(begin, begin + RoundToPages(bytes));
  }
  return static_cast<int>(RawCall(SYS_munmap, reinterpret_cast<long>(address), bytes));
}

int madvise(void* address, size_t bytes, int advice) noexcept {
  // All but these are hints.
  const bool changes_memory = advice == MADV_DONTNEED || advice == MADV_REMOVE;
  if (IsInFiber() && !changes_memory) return 0;
  return static_cast<int>(RawCall(SYS_madvise, reinterpret_cast<long>(address), bytes, advice));
}

}  // extern "C"
