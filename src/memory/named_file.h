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

// Creates an empty file that can grow to `bytes`, in /dev/shm if that has room, else in TMPDIR or
// /tmp. The creator holds a lock on it while it lives. Files of creators that died before they
// could unlink them are removed here.
Result<NamedFile> CreateNamedFile(int64_t bytes);

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_NAMED_FILE_H_
