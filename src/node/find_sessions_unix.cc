#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/descriptor.h"
#include "base/text.h"
#include "node/find_sessions.h"

namespace multiverso {
namespace {

namespace fs = std::filesystem;

// Calls use(path) for the entries of a folder that can be read.
template <class Use>
void ForEachEntry(const std::string& folder, const Use& use) {
  const StreamNumbersTaken taken;  // also while `use` opens files
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) use(entry->path());
}

bool IsSegment(const fs::path& descriptor, bool may_be_table) {
  std::error_code error;
  const std::string target = fs::read_symlink(descriptor, error).string();
  // A segment is a memfd, or a file whose name begins with "multiverso-".
  if (!may_be_table && target.find("/memfd:multiverso-table") != std::string::npos) return false;
  return target.find("/memfd:multiverso") != std::string::npos ||
         target.find("/multiverso-") != std::string::npos;
}

uint64_t ReadNumber(const fs::path& path, int64_t offset) {
  std::error_code error;
  // A pipe or device would block this call.
  if (!fs::is_regular_file(path, error)) return 0;
  std::ifstream file(path, std::ios::binary);
  uint64_t number = 0;
  file.seekg(offset).read(reinterpret_cast<char*>(&number), sizeof(number));
  return file ? number : 0;
}

}  // namespace

std::vector<int64_t> OtherProcesses() {
  std::vector<int64_t> found;
  ForEachEntry("/proc", [&](const fs::path& path) {
    const std::string name = path.filename().string();
    char* end = nullptr;  // points into the name
    const int64_t pid = std::strtoll(name.c_str(), &end, 10);
    struct stat info{};
    if (pid <= 0 || *end != '\0' || pid == getpid()) return;
    if (stat(path.c_str(), &info) == 0 && info.st_uid == geteuid()) found.push_back(pid);
  });
  return found;
}

std::vector<std::string> SegmentsOf(int64_t pid, uint64_t magic, int64_t offset) {
  std::vector<std::string> found;
  ForEachEntry(StrCat("/proc/", pid, "/fd"), [&](const fs::path& path) {
    if (IsSegment(path, offset != 0) && ReadNumber(path, offset) == magic)
      found.push_back(path.string());
  });
  return found;
}

}  // namespace multiverso
