// Collective calls of the C API, and the records of calls in the rank's flight recorder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "c_api/call_guard.h"
#include "c_api/registry.h"
#include "c_api/waiting.h"
#include "calls/table.h"
#include "node/flight_recorder.h"

namespace multiverso::c_api {

// Begins the record of a collective call of the session.
inline FlightRecorder::Entry* RecordCall(const SessionEntry& session, CallKind call,
                                         int64_t bytes = 0) {
  return session.session->context()->memory()->recorder()->Begin(call, /*table=*/-1, bytes);
}

// Begins the record of a collective get of `count` elements of a table.
inline FlightRecorder::Entry* RecordCollectiveGet(const Table& table, int64_t count) {
  const int64_t bytes = count * SizeOf(table.spec().value_type());
  table.context()->memory()->recorder()->CountGet(table.id(), bytes);
  return table.context()->memory()->recorder()->Begin(CallKind::kCollectiveGet, table.id(), bytes);
}

// Begins the record of a call that moves `count` elements of a table.
inline FlightRecorder::Entry* RecordCall(const Table& table, RequestKind kind, int64_t count) {
  FlightRecorder* const recorder = table.context()->memory()->recorder();
  const int64_t bytes = count * SizeOf(table.spec().value_type());
  if (ReturnsData(kind)) recorder->CountGet(table.id(), bytes);
  if (IsAdd(kind)) recorder->CountAdd(table.id(), bytes);
  return recorder->Begin(CallOf(kind), table.id(), bytes);
}

// Records a collective call of the session, and runs its `body`, a Status(SessionEntry*,
// Interrupt*). Background calls on tables end first. If one has failed, the collective call fails
// with its error on all ranks, since the others would otherwise wait for this one. Returns
// StateError if another thread is in a collective call of the session.
template <class Body>
Status MakeCollective(SessionEntry* entry, CallKind call, int64_t bytes, Interrupt* interrupt,
                      const Body& body) {
  const CallGuard guard(&entry->in_collective_call);
  MV_RETURN_IF_NOT_OK(guard.Check("session"));
  FlightRecorder::Entry* const record = RecordCall(*entry, call, bytes);
  RankContext* const context = entry->session->context();
  Group* const group = IsOfWorkers(call) ? context->workers() : context->world();
  const Status failure = FlushTables(entry, WaitLimit::Until(Instant::max(), interrupt));
  Status status = interrupt->status();
  if (status.ok()) {
    group->FailNext(failure);
    status = body(entry, interrupt);
    group->FailNext(Status::Ok());  // A call in which this rank takes no part begins no collective.
    if (!failure.ok()) status = failure;
  }
  record->End(status.code());
  return status;
}

// Makes a collective call of the session. If the caller aborts it, this rank gives the session up.
// The call also ends when another thread of this rank leaves the session.
template <class Body>
Status RunCollective(MV_Session session, CallKind call, int64_t bytes, const Body& body) {
  MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
  MV_ASSIGN_OR_RETURN(const SessionUse use, OpenSessions().UsingOpen(session));
  SessionEntry* const entry = use.get();
  const std::optional<std::string> left = LeaveReason(entry);
  if (left.has_value()) return Status(Code::kAborted, *left);
  InterruptOf interrupt([entry] {
    const std::optional<std::string> reason = LeaveReason(entry);
    return reason.has_value() ? reason : AskThisThread();
  });
  interrupt.OnAbort(entry->session->context()->state());
  const Status status = MakeCollective(entry, call, bytes, &interrupt, body);
  return interrupt.ResultOf(status);
}

}  // namespace multiverso::c_api
