#include "node/node_snapshot.h"

namespace multiverso {

Result<NodeSnapshot> NodeSnapshot::OfFile(const std::string& /*path*/) {
  return Status(Code::kUnsupported, "control segments cannot be read as files on Windows");
}

}  // namespace multiverso
