// The functions with which the C API makes a call on a table.
#ifndef MULTIVERSO_C_API_TABLE_CALL_H_
#define MULTIVERSO_C_API_TABLE_CALL_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "c_api/call_guard.h"
#include "c_api/call_recording.h"
#include "c_api/registry.h"
#include "shard/request.h"
#include "table/table.h"

namespace multiverso::c_api {

// A call that has to wait. The guard is destroyed before the use, which keeps the flag alive.
struct WaitingCall {
  TableUse use;
  CallGuard guard;
  const char* name;
  FlightRecorder::Entry* record;
  bool is_collective;  // other ranks cannot continue without this call
};

// Runs `body`, which owns its arguments, to its end.
Status RunWaiting(WaitingCall call, std::function<Status(const WaitLimit&)> body);

// Makes the checked get that all workers make together.
Status RunCollectiveGet(TableUse use, const Request& get, int64_t count);

// Runs `body`, a Status(Progress*, const WaitLimit&), which makes a checked call of kind `kind`. A
// call that need not wait reads no clock, allocates no memory and does not copy `body`.
template <class Body>
Status RunTableCall(TableUse* use, RequestKind kind, int64_t count, const Body& body) {
  const Table& table = *(*use)->table;
  const bool is_in_round = table.has_rounds() && kind != RequestKind::kSetHyper;
  CallGuard guard(is_in_round ? &(*use)->in_round_call : nullptr);
  MV_RETURN_IF_NOT_OK(guard.Check("table"));
  FlightRecorder::Entry* const record = RecordCall(table, kind, count);
  Progress progress;
  if (table.RunsHere(kind)) {
    const Status status = body(&progress, WaitLimit{Instant::max(), Instant::min()});
    if (status.ok()) {
      record->EndAtOnce(Code::kOk);
      return status;
    }
    if (!status.pending()) {
      record->EndAtOnce(status.code());
      return status.In(table.Where(NameOf(kind)));
    }
  }
  return RunWaiting(
      WaitingCall{std::move(*use), std::move(guard), NameOf(kind), record, is_in_round},
      [body, progress](const WaitLimit& limit) mutable { return body(&progress, limit); });
}

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_TABLE_CALL_H_
