// Notes that calls of the C API leave in their rank's flight log.
#ifndef MULTIVERSO_C_API_CALL_RECORDING_H_
#define MULTIVERSO_C_API_CALL_RECORDING_H_

#include <cstdint>

#include "base/status.h"
#include "c_api/registry.h"
#include "node/flight_recorder.h"
#include "table/table.h"

namespace multiverso::c_api {

// A call that all ranks make together begins.
inline FlightRecorder::Entry* RecordCall(const SessionEntry& session, CallKind call,
                                         int64_t bytes = 0) {
  return session.session->group()->memory()->recorder()->Begin(call, /*table=*/-1, bytes);
}

// A call begins that moves `count` elements of a table, if it `gets`, `adds` or does both.
inline FlightRecorder::Entry* RecordCall(const Table& table, CallKind call, int64_t count,
                                         bool gets, bool adds) {
  FlightRecorder* const log = table.group()->memory()->recorder();
  const int64_t bytes = count * SizeOf(table.spec().type());
  if (gets) log->CountGet(table.id(), bytes);
  if (adds) log->CountAdd(table.id(), bytes);
  return log->Begin(call, table.id(), bytes);
}

// The call has ended without having waited.
inline const Status& Ended(FlightRecorder::Entry* record, const Status& status) {
  record->EndAtOnce(status.code());
  return status;
}

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_CALL_RECORDING_H_
