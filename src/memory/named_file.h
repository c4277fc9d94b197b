// Files that stand in for anonymous shared memory where the kernel or a sandbox refuses it.
#ifndef MULTIVERSO_MEMORY_NAMED_FILE_H_
#define MULTIVERSO_MEMORY_NAMED_FILE_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace multiverso {

struct NamedFile {
  int fd = -1;  // on Windows the number of a handle
  std::string path;
};

// A new empty file that can grow to `bytes`, in /dev/shm if it has the room, else in TMPDIR or
// /tmp. Its creator holds a lock on it as long as it lives; files of creators that died before
// they could unlink them are removed on the way.
Result<NamedFile> CreateNamedFile(int64_t bytes);

}  // namespace multiverso

#endif  // MULTIVERSO_MEMORY_NAMED_FILE_H_
