// The errors that all file systems return. LocalFileSystem is in file_system_{unix,windows}.cc.
#include "checkpoint/file_system.h"

#include <cerrno>
#include <cstring>

#include "base/json.h"
#include "base/text.h"

namespace multiverso {

Status IoFailure(const std::string& path, const char* action, int error_number,
                 int64_t bytes_done) {
  std::string text = StrCat(path, ": cannot ", action, ": ", std::strerror(error_number));
  if (bytes_done > 0) text += StrCat(", after ", bytes_done, " bytes");
  return Status(Code::kCheckpointIo, text, FileFault{path, error_number, bytes_done});
}

Status ForeignEntryFailure(const std::string& path, const std::string& name) {
  return Status(
      Code::kCheckpointIo,
      StrCat(path, ": cannot remove: it contains ", JsonText(name), ", which no save writes"),
      FileFault{path, ENOTEMPTY, 0});
}

Status CorruptionFailure(const std::string& path, int64_t offset, const std::string& problem) {
  return Status(Code::kCheckpointCorrupt, StrCat(path, ", byte ", offset, ": ", problem),
                FileFault{path, 0, offset});
}

}  // namespace multiverso
