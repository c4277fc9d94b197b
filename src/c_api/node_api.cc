// The part of the C API that describes the ranks of a node to other processes (`multiverso top`).
#include <cstring>
#include <string>

#include "base/text.h"
#include "c_api/guard.h"
#include "multiverso/c_api.h"
#include "node/node_snapshot.h"

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_NodeDescribe(const char* path, char* json, int64_t room, int64_t* length) {
  return Guard([&]() -> Status {
    if (path == nullptr || length == nullptr || room < 0 || (room > 0 && json == nullptr)) {
      return Status(Code::kValue, "MV_NodeDescribe: expected a path, room and a length");
    }
    const Result<NodeSnapshot> snapshot = NodeSnapshot::OfFile(path);
    if (!snapshot.ok()) return snapshot.status();
    const std::string text = snapshot.value().Json();
    *length = static_cast<int64_t>(text.size());
    if (*length <= room) std::memcpy(json, text.data(), text.size());
    return Status::Ok();
  });
}
