#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "memory/named_file.h"
#include "node/place.h"

namespace multiverso {

std::string MemoryDomain() {
  std::string domain = StrCat(HostName(), "/", geteuid());
  // Segments are files, which ranks can open only if they see the same folders.
  for (const std::string& folder : SegmentFolders()) {
    struct stat info{};
    if (stat(folder.c_str(), &info) == 0) domain += StrCat("/", info.st_dev, ":", info.st_ino);
  }
  return domain;
}

std::string NetworkDomain() { return HostName(); }

}  // namespace multiverso
