#include "transport/node_control.h"

namespace multiverso {

const char* NameOf(CallKind kind) {
  switch (kind) {
    case CallKind::kJoin:
      return "init";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kCreateTable:
    case CallKind::kMapTable:
    case CallKind::kFillTable:
      return "the creation of a table";
    case CallKind::kCollectiveGet:
      return "get(sync=True)";
    case CallKind::kAggregate:
      return "aggregate";
    case CallKind::kSave:
      return "save";
    case CallKind::kSaveWait:
      return "the end of a save";
    case CallKind::kLoad:
      return "load";
    case CallKind::kClose:
      return "shutdown";
  }
  return "an unknown call";
}

}  // namespace multiverso
