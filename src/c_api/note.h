// Notes that calls of the C API leave in their rank's flight log.
#ifndef MULTIVERSO_C_API_NOTE_H_
#define MULTIVERSO_C_API_NOTE_H_

#include <cstdint>

#include "base/status.h"
#include "c_api/registry.h"
#include "table/table.h"
#include "transport/flight_log.h"

namespace multiverso::c_api {

// A call that all ranks make together begins.
inline FlightLog::Entry* Note(const SessionEntry& session, FlightCall call, int64_t bytes = 0) {
  return session.session->group()->log()->Begin(call, /*table=*/-1, bytes);
}

// A call begins that moves `count` elements of a table, if it `gets`, `adds` or does both.
inline FlightLog::Entry* Note(const Table& table, FlightCall call, int64_t count, bool gets,
                              bool adds) {
  FlightLog* const log = table.group()->log();
  const int64_t bytes = count * SizeOf(table.spec().type());
  if (gets) log->CountGet(table.id(), bytes);
  if (adds) log->CountAdd(table.id(), bytes);
  return log->Begin(call, table.id(), bytes);
}

// The call has ended without having waited.
inline const Status& Ended(FlightLog::Entry* note, const Status& status) {
  note->EndAtOnce(status.code());
  return status;
}

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_NOTE_H_
