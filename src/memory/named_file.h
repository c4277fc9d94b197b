// Files that replace anonymous shared memory: on Windows, and where Linux or a sandbox refuses it.
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

// Creates an empty file for a segment of `bytes` bytes: on Windows in the temporary folder, on
// Linux where there is room, in /dev/shm or else in TMPDIR or /tmp. On Linux a creator locks its
// file while it has the file open, and this function removes older files that are not locked.
Result<NamedFile> CreateNamedFile(int64_t bytes);

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_NAMED_FILE_H_
