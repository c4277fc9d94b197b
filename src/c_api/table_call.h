// How the C API makes a call on a table: at once, as a waiting call (waiting.h), or in the
// background.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "c_api/call_guard.h"
#include "c_api/call_recording.h"
#include "c_api/registry.h"
#include "calls/table.h"
#include "shard/request.h"

namespace multiverso::c_api {

// Waits for the background calls of a table, and sets the deadline of the call that follows, whose
// timeout begins when they have ended.
inline Status Drain(const TableEntry& entry, WaitLimit* limit) {
  MV_RETURN_IF_NOT_OK(entry.background->Drain(WaitLimit::Until(Instant::max(), limit->interrupt)));
  limit->deadline = entry.owner->session->NextDeadline();
  return Status::Ok();
}

// Runs `body`, a Status(const WaitLimit&), which makes a call on the table and may wait until the
// session's timeout. Then ends the record of the call. A call that need not wait reads no clock and
// allocates no memory. In a collective call, the other ranks wait for this rank, so an abort by the
// caller ends the session for them, too.
template <class Body>
Status RunRecorded(const TableEntry& entry, const char* name, FlightRecorder::Entry* record,
                   bool is_collective, const Body& body) {
  const Table& table = *entry.table;
  InterruptOf interrupt(&AskThisThread);
  if (is_collective) interrupt.OnAbort(table.context()->state());
  WaitLimit limit =
      WaitLimit::Until(record->began_at() + entry.owner->session->timeout(), &interrupt);
  const auto run = [&]() -> Status {
    // A worker's calls on a table run in the order in which they were made.
    if (!entry.background->IsIdle()) MV_RETURN_IF_NOT_OK(Drain(entry, &limit));
    return body(limit);
  };
  Status status = run();
  if (interrupt.has_waited()) {
    status = interrupt.ResultOf(status);
    record->End(status.code());
  } else {
    record->EndAtOnce(status.code());
  }
  if (!status.ok()) status = status.In(table.Where(name));
  return status;
}

// Returns the kind of request that MV_TableRun and MV_TableStart call `operation`.
Result<RequestKind> KindOf(const char* operation);

// Runs `body`, a Status(const WaitLimit&), which makes a call of kind `kind` that Table::Check has
// accepted. No other worker waits for a peek (Request::is_peek).
template <class Body>
Status RunTableCall(TableEntry* entry, RequestKind kind, int64_t count, const Body& body,
                    bool is_peek = false) {
  MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
  const Table& table = *entry->table;
  const bool needs_order = is_peek ? table.EveryGetIsCollective() : table.NeedsOrder(kind);
  const CallGuard guard(needs_order ? &entry->in_round_call : nullptr);
  MV_RETURN_IF_NOT_OK(guard.Check("table"));
  return RunRecorded(*entry, NameOf(kind), RecordCall(table, kind, count), needs_order && !is_peek,
                     body);
}

// Makes a call that the background thread of a table runs. It owns its arguments.
using BackgroundBody = std::function<Status(const WaitLimit&)>;

// Starts a call of kind `kind`, with `bytes` of arguments, in the background. Waits until there is
// room for the arguments, before `take_arguments` is called. Defined in background_api.cc, beside
// the futures. `use` is shared, since a std::function must be copyable.
Status StartCall(std::shared_ptr<TableUse> use, RequestKind kind, int64_t count, int64_t bytes,
                 const std::function<BackgroundBody()>& take_arguments, MV_Future* future);

}  // namespace multiverso::c_api
