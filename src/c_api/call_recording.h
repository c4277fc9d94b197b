// Collective calls of the C API, and the records of calls in the rank's flight recorder.
#ifndef MULTIVERSO_C_API_CALL_RECORDING_H_
#define MULTIVERSO_C_API_CALL_RECORDING_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/status.h"
#include "c_api/pending.h"
#include "c_api/registry.h"
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

// Returns the slice of a collective call, or 0 if the call waits for no other rank and no file.
inline std::chrono::milliseconds SliceOf(const SessionEntry& entry, CallKind call) {
  const bool uses_files = call == CallKind::kSave || call == CallKind::kSaveWait ||
                          call == CallKind::kLoad ||
                          (call == CallKind::kClose && entry.session->IsSaving());
  return uses_files || entry.session->members().size() > 1 || HasBackgroundCalls(entry)
             ? entry.wait_slice
             : std::chrono::milliseconds(0);
}

// Runs `body`, a collective call of the session, with RunCall, and records it. Returns StateError
// if this thread has a pending call or another thread is in a collective call of the session.
inline Status RunCollective(MV_Session session, CallKind call, int64_t bytes,
                            std::function<Status(SessionEntry*, Interrupt*)> body) {
  MV_RETURN_IF_NOT_OK(CheckNothingPending());
  auto collective_use = UseForCollectiveCall(session);
  if (!collective_use.ok()) return collective_use.status();
  SessionEntry* const entry = collective_use.value()->use.get();
  FlightRecorder::Entry* const record = RecordCall(*entry, call, bytes);
  return RunCall(SliceOf(*entry, call), [held = collective_use.value(), entry, record,
                                         body = std::move(body)](Interrupt* interrupt) {
    Status status = FlushTables(entry, WaitLimit::Until(Instant::max(), interrupt));
    if (status.ok()) status = body(entry, interrupt);
    record->End(status.code());
    return status;
  });
}

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_CALL_RECORDING_H_
