// The part of the C API that finds the sessions on this machine, and describes the ranks of a node
// to these ranks and to other processes (`multiverso top`).
#include "c_api/guard.h"
#include "c_api/registry.h"
#include "multiverso/c_api.h"
#include "node/find_sessions.h"

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_FindSessions(int64_t pid, char* json, int64_t room, int64_t* length) {
  return Guard([&] { return WriteText(DescribeSessions(pid), json, room, length); });
}

int32_t MV_NoteLoss(int64_t pid, int32_t rank) {
  return Guard([&]() -> Status {
    // The number 0 would mean all processes.
    if (pid <= 0) {
      return Status(Code::kValue, StrCat("MV_NoteLoss: expected a process, received ", pid));
    }
    NoteLossIn(pid, rank);
    return Status::Ok();
  });
}

int32_t MV_NodeDescribe(const char* path, char* json, int64_t room, int64_t* length) {
  return Guard([&]() -> Status {
    if (path == nullptr) return Status(Code::kValue, "MV_NodeDescribe: expected a path");
    MV_ASSIGN_OR_RETURN(const FoundSession found, FoundSession::Open(path));
    return WriteText(found.snapshot().Json().text, json, room, length);
  });
}

int32_t MV_SessionStats(MV_Session session, char* json, int64_t room, int64_t* length) {
  return OpenSessions().With(session, [&](SessionEntry* entry) -> Status {
    const Segment& control = entry->session->context()->memory()->segment();
    MV_ASSIGN_OR_RETURN(const NodeSnapshot snapshot,
                        NodeSnapshot::Of(control.data(), control.bytes()));
    return WriteText(snapshot.Json().text, json, room, length);
  });
}
