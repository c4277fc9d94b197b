#include "transport/node_view.h"

namespace multiverso {

bool NodeView::CanBeSeen() { return false; }

Result<NodeView> NodeView::OfFile(const std::string& /*path*/) {
  return Status(Code::kUnsupported, "what ranks share cannot be seen from outside on Windows");
}

}  // namespace multiverso
