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
#include "shard/request.h"
#include "table/table.h"

namespace multiverso::c_api {

// Runs `body`, a Status(WaitLimit), which makes a call on the table and may wait until the
// session's timeout. Then ends the record of the call. In a collective call, the other ranks wait
// for this rank, so an abort by the caller ends the session for them, too.
template <class Body>
Status RunWaiting(const TableEntry& entry, const char* name, FlightRecorder::Entry* record,
                  bool is_collective, const Body& body) {
  const Table& table = *entry.table;
  const Instant deadline = entry.owner->session->NextDeadline();
  const Status status = RunCall([&](Interrupt* interrupt) {
    if (is_collective) {
      interrupt->OnAbort(
          [&table](const Status& reason) { table.context()->state()->GiveUp(reason); });
    }
    return body(WaitLimit::Until(deadline, interrupt));
  });
  record->End(status.code());
  return status.ok() ? status : status.In(table.Where(name));
}

// Returns the kind of request that MV_TableRun and MV_TableStart call `operation`.
Result<RequestKind> KindOf(const char* operation);

// Waits for the background calls of a table, and sets the deadline of the call that follows, whose
// timeout begins when they have ended.
inline Status Drain(const TableEntry& entry, WaitLimit* limit) {
  MV_RETURN_IF_NOT_OK(entry.background->Drain(WaitLimit::Until(Instant::max(), limit->interrupt)));
  limit->deadline = entry.owner->session->NextDeadline();
  return Status::Ok();
}

// Runs `body`, a Status(Progress*, const WaitLimit&), which makes a call of kind `kind` that
// Table::Check has accepted. A call that need not wait reads no clock and allocates no memory. No
// other worker waits for a peek (Request::is_peek).
template <class Body>
Status RunTableCall(TableEntry* entry, RequestKind kind, int64_t count, const Body& body,
                    bool is_peek = false) {
  MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
  const Table& table = *entry->table;
  const bool needs_order = is_peek ? table.EveryGetIsCollective() : table.NeedsOrder(kind);
  const CallGuard guard(needs_order ? &entry->in_round_call : nullptr);
  MV_RETURN_IF_NOT_OK(guard.Check("table"));
  FlightRecorder::Entry* const record = RecordCall(table, kind, count);
  Progress progress;
  // A worker's calls on a table run in the order in which they were made.
  const bool must_drain = !entry->background->IsIdle();
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
  return RunWaiting(*entry, NameOf(kind), record, needs_order && !is_peek,
                    [&](WaitLimit limit) -> Status {
                      if (must_drain) MV_RETURN_IF_NOT_OK(Drain(*entry, &limit));
                      return body(&progress, limit);
                    });
}

// Makes a call that the background thread of a table runs. It owns its arguments.
using BackgroundBody = std::function<Status(const WaitLimit&)>;

// Starts a call of kind `kind`, with `bytes` of arguments, in the background. Waits until there is
// room for the arguments, before `take_arguments` is called. Defined in background_api.cc, beside
// the futures. `use` is shared, since a std::function must be copyable.
Status StartCall(std::shared_ptr<TableUse> use, RequestKind kind, int64_t count, int64_t bytes,
                 const std::function<BackgroundBody()>& take_arguments, MV_Future* future);

}  // namespace multiverso::c_api
