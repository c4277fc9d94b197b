// The part of the C API that describes the ranks of a node, to themselves and to other processes
// (`multiverso top`).
#include <cstring>
#include <string>

#include "base/text.h"
#include "c_api/guard.h"
#include "c_api/registry.h"
#include "multiverso/c_api.h"
#include "node/node_snapshot.h"

namespace multiverso::c_api {
namespace {

Status CheckRoom(const char* call, const char* json, int64_t room, const int64_t* length) {
  if (length != nullptr && room >= 0 && (room == 0 || json != nullptr)) return Status::Ok();
  return Status(Code::kValue, StrCat(call, ": expected room and a length"));
}

Status Describe(const Result<NodeSnapshot>& snapshot, char* json, int64_t room, int64_t* length) {
  if (!snapshot.ok()) return snapshot.status();
  const std::string text = snapshot.value().Json();
  *length = static_cast<int64_t>(text.size());
  if (*length <= room) std::memcpy(json, text.data(), text.size());
  return Status::Ok();
}

}  // namespace
}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_NodeDescribe(const char* path, char* json, int64_t room, int64_t* length) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckRoom("MV_NodeDescribe", json, room, length));
    if (path == nullptr) return Status(Code::kValue, "MV_NodeDescribe: expected a path");
    return Describe(NodeSnapshot::OfFile(path), json, room, length);
  });
}

int32_t MV_SessionStats(MV_Session session, char* json, int64_t room, int64_t* length) {
  return WithSession(session, [&](SessionEntry* entry) -> Status {
    MV_RETURN_IF_NOT_OK(CheckRoom("MV_SessionStats", json, room, length));
    const Segment& control = entry->session->context()->memory()->segment();
    return Describe(NodeSnapshot::Of(control.data(), control.bytes()), json, room, length);
  });
}
