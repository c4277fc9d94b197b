// Collective calls of the C API, and the records of calls in the rank's flight recorder.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "c_api/call_guard.h"
#include "c_api/registry.h"
#include "c_api/waiting.h"
#include "node/flight_recorder.h"
#include "table/table.h"

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

// Makes a collective call of the session: runs `body`, a Status(SessionEntry*, Interrupt*), and
// records it. Background calls on tables end first. If one has failed, the collective call fails
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

// Waits until the session's calls in the background have ended, which every other collective call
// does before it begins. If the caller aborts the wait, or the call that follows with the same
// interrupt, this rank gives the session up.
inline Status DrainCollectives(SessionEntry* entry, Interrupt* interrupt) {
  interrupt->OnAbort(
      [entry](const Status& reason) { entry->session->context()->state()->GiveUp(reason); });
  return entry->background->Drain(WaitLimit::Until(Instant::max(), interrupt));
}

// Makes a collective call when the session's calls in the background have ended.
template <class Body>
Status RunCollective(MV_Session session, CallKind call, int64_t bytes, const Body& body) {
  MV_RETURN_IF_NOT_OK(CheckNotAsking());
  const SessionHandles::Use use = OpenSessions().Using(session);
  if (!use) return OpenSessions().Stale(session);
  return RunCall([&](Interrupt* interrupt) -> Status {
    MV_RETURN_IF_NOT_OK(DrainCollectives(use.get(), interrupt));
    return MakeCollective(use.get(), call, bytes, interrupt, body);
  });
}

}  // namespace multiverso::c_api
