#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "node/node_snapshot.h"

namespace multiverso {
namespace {

// Reads the first bytes of a file, at most `wanted` and `there`. Returns how many it read.
template <class Lines>
int64_t ReadInto(Lines* lines, int file, int64_t wanted, int64_t there) {
  const auto bytes = static_cast<size_t>(std::min(wanted, there));
  lines->resize(bytes / sizeof((*lines)[0]) + 1);
  auto* const to = reinterpret_cast<char*>(lines->data());
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(file, to + done, bytes - done, static_cast<off_t>(done));
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<int64_t>(done);
}

}  // namespace

bool NodeSnapshot::CanBeSeen() { return true; }

Result<NodeSnapshot> NodeSnapshot::OfFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return Status(Code::kUnsupported, StrCat(path, ": ", std::strerror(errno)));
  const auto copy = std::make_shared<std::vector<Line>>();
  struct stat info{};
  const bool is_file = fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  int64_t bytes = is_file ? ReadInto(copy.get(), file, sizeof(NodeControl), info.st_size) : 0;
  if (bytes == static_cast<int64_t>(sizeof(NodeControl))) {
    const int32_t ranks = reinterpret_cast<const NodeControl*>(copy->data())->ranks;
    // Of() reports an invalid number of ranks.
    if (ranks >= 1 && ranks <= kMostRanks) {
      bytes = ReadInto(copy.get(), file, NodeControl::BytesFor(ranks), info.st_size);
    }
  }
  close(file);
  Result<NodeSnapshot> view = Of(reinterpret_cast<const char*>(copy->data()), bytes);
  if (view.ok()) view->copy_ = copy;
  return view;
}

}  // namespace multiverso
