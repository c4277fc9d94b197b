// Files that replace anonymous shared memory where Linux or a sandbox refuses it, and on other
// systems.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace multiverso {

struct NamedFile {
  int fd = -1;
  std::string path;
};

// Returns the folders for such files, in the order in which they are tried.
std::vector<std::string> SegmentFolders();

// Creates an empty file for a segment of `bytes` bytes, in the first folder with enough room. A
// creator locks its file while it has the file open, and this function removes older files that are
// not locked.
Result<NamedFile> CreateNamedFile(int64_t bytes);

}  // namespace multiverso
