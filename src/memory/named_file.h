// Files that replace anonymous shared memory where the kernel or a sandbox refuses it.
#ifndef MULTIVERSO_MEMORY_NAMED_FILE_H_
#define MULTIVERSO_MEMORY_NAMED_FILE_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace multiverso {

struct NamedFile {
  int fd = -1;  // the value of a handle on Windows
  std::string path;
};

// Creates an empty file that can grow to `bytes`, on Linux in /dev/shm if there is room, else in
// TMPDIR or /tmp. On Linux, a creator locks its file while it lives, and this function removes
// files whose creators died before they unlinked them.
Result<NamedFile> CreateNamedFile(int64_t bytes);

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_NAMED_FILE_H_
