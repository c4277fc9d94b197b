// How the C API makes a call on a table: at once, or as a waiting call (pending.h).
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

// A call that may wait. The guard is destroyed before `use`, which keeps the guard's flag alive.
struct WaitingCall {
  TableUse use;
  CallGuard guard;
  const char* name;
  FlightRecorder::Entry* record;
  bool is_collective;  // other ranks cannot continue without this call
};

// Runs `body`, which owns its arguments, with RunCall, and ends the record of the call.
Status RunWaiting(WaitingCall call, std::function<Status(const WaitLimit&)> body);

// Returns the kind of request that MV_TableRun and MV_TableStart call `operation`.
Result<RequestKind> KindOf(const char* operation);

// Waits for the background calls of a table. The limit of the next call then begins.
inline Status Drain(const TableEntry& entry, WaitLimit* limit) {
  MV_RETURN_IF_NOT_OK(entry.background->Drain(WaitLimit::Until(Instant::max(), limit->interrupt)));
  limit->deadline = entry.owner->session->NextDeadline();
  return Status::Ok();
}

// Makes a collective get, which Table::Check has accepted.
Status RunCollectiveGet(TableUse use, const Request& get, int64_t count);

// Runs `body`, a Status(Progress*, const WaitLimit&), which makes a call of kind `kind` that
// Table::Check has accepted. A call that need not wait reads no clock, allocates no memory and does
// not copy `body`. No other worker waits for a peek (Request::IsPeek).
template <class Body>
Status RunTableCall(TableUse* use, RequestKind kind, int64_t count, const Body& body,
                    bool is_peek = false) {
  const Table& table = *(*use)->table;
  const bool is_in_round = table.has_rounds() && kind != RequestKind::kSetHyper;
  CallGuard guard(is_in_round ? &(*use)->in_round_call : nullptr);
  MV_RETURN_IF_NOT_OK(guard.Check("table"));
  FlightRecorder::Entry* const record = RecordCall(table, kind, count);
  Progress progress;
  // A worker's calls on a table run in the order in which they were made.
  const bool must_drain = !(*use)->background->IsIdle();
  if (!must_drain && table.RunsHere(kind)) {
    // The slice has ended before the call, so the call returns pending where it would have to wait.
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
  const TableEntry* const entry = must_drain ? use->get() : nullptr;
  return RunWaiting(
      WaitingCall{std::move(*use), std::move(guard), NameOf(kind), record, is_in_round && !is_peek},
      [body, progress, entry](WaitLimit limit) mutable -> Status {
        if (entry != nullptr) MV_RETURN_IF_NOT_OK(Drain(*entry, &limit));
        return body(&progress, limit);
      });
}

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_TABLE_CALL_H_
