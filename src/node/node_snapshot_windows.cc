#include "node/node_snapshot.h"

namespace multiverso {

bool NodeSnapshot::CanBeSeen() { return false; }

Result<NodeSnapshot> NodeSnapshot::OfFile(const std::string& /*path*/) {
  return Status(Code::kUnsupported, "what ranks share cannot be seen from outside on Windows");
}

}  // namespace multiverso
