#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "base/text.h"
#include "node/node_snapshot.h"

namespace multiverso {
namespace {

// Reads the first `max_bytes` of a file of `file_bytes`, or fewer. Returns how many it read.
template <class Lines>
int64_t ReadInto(Lines* lines, int file, int64_t max_bytes, int64_t file_bytes) {
  const auto wanted = static_cast<size_t>(std::min(max_bytes, file_bytes));
  lines->resize(wanted / sizeof((*lines)[0]) + 1);
  auto* const buffer = reinterpret_cast<char*>(lines->data());
  size_t done = 0;
  while (done < wanted) {
    const ssize_t count = pread(file, buffer + done, wanted - done, static_cast<off_t>(done));
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  return static_cast<int64_t>(done);
}

}  // namespace

Result<NodeSnapshot> NodeSnapshot::OfFile(const std::string& path) {
  // A pipe or device at the path must not block this call; only regular files are read.
  const int file = OpenDescriptor(path.c_str(), O_RDONLY | O_NONBLOCK);
  if (file < 0) return Status(Code::kUnsupported, StrCat(path, ": ", std::strerror(errno)));
  const auto copy = std::make_shared<std::vector<Line>>();
  struct stat info{};
  const bool is_file = fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  int64_t bytes = is_file ? ReadInto(copy.get(), file, sizeof(NodeControl), info.st_size) : 0;
  if (bytes == static_cast<int64_t>(sizeof(NodeControl))) {
    const int32_t num_ranks = reinterpret_cast<const NodeControl*>(copy->data())->num_ranks;
    // NodeSnapshot::Of reports an invalid number of ranks.
    if (num_ranks >= 1 && num_ranks <= kMaxRanks) {
      bytes = ReadInto(copy.get(), file, NodeControl::BytesFor(num_ranks), info.st_size);
    }
  }
  close(file);
  Result<NodeSnapshot> snapshot = Of(reinterpret_cast<const char*>(copy->data()), bytes);
  if (snapshot.ok()) snapshot->copy_ = copy;
  return snapshot;
}

}  // namespace multiverso
