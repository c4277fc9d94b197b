// How the C API makes a call on a table.
#ifndef MULTIVERSO_C_API_TABLE_CALL_H_
#define MULTIVERSO_C_API_TABLE_CALL_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "c_api/call_guard.h"
#include "c_api/call_recording.h"
#include "c_api/pending.h"
#include "c_api/registry.h"
#include "shard/request.h"
#include "table/table.h"

namespace multiverso::c_api {

// A call that has to wait. The guard ends before the use does.
struct WaitingCall {
  TableUse use;
  CallGuard guard;
  const char* name;
  FlightRecorder::Entry* record;
  bool is_collective;  // other ranks cannot continue without this call
};

// Runs `body`, a Status(const WaitLimit&), to its end.
template <class Body>
Status RunWaiting(WaitingCall call, Body body) {
  SessionEntry* const session = call.use->session;
  const Instant deadline = session->session->NextDeadline();
  auto held = std::make_shared<WaitingCall>(std::move(call));
  return RunCall(
      session->slice, [held, deadline, body = std::move(body)](Interrupt* interrupt) mutable {
        const Table& table = *held->use->table;
        if (interrupt != nullptr && held->is_collective) {
          interrupt->OnGivingUp([&table](const Status& reason) { table.group()->Abort(reason); });
        }
        const Status status = body(WaitLimit::Until(deadline, interrupt));
        held->record->End(status.code());
        return status.ok() ? status : status.In(table.Where(held->name));
      });
}

// Runs `body`, a Status(Progress*, const WaitLimit&), which makes a checked call of that kind. The
// usual call waits for nothing and needs neither a clock nor an allocation.
template <class Body>
Status RunTableCall(TableUse use, RequestKind kind, int64_t count, Body body) {
  const Table& table = *use->table;
  const bool is_in_round = kind != RequestKind::kSetHyper && table.consistency()->HasRounds();
  CallGuard guard(is_in_round ? &use->in_round_call : nullptr);
  MV_RETURN_IF_NOT_OK(guard.Check("table"));
  FlightRecorder::Entry* const record = RecordCall(table, kind, count);
  Progress progress;
  if (table.RunsHere(kind)) {
    const Status status = body(&progress, WaitLimit{Instant::max(), Instant::min()});
    if (!status.pending()) {
      record->EndAtOnce(status.code());
      return status.ok() ? status : status.In(table.Where(NameOf(kind)));
    }
  }
  WaitingCall call{std::move(use), std::move(guard), NameOf(kind), record, is_in_round};
  return RunWaiting(std::move(call),
                    [body = std::move(body), progress](const WaitLimit& limit) mutable {
                      return body(&progress, limit);
                    });
}

}  // namespace multiverso::c_api

#endif  // MULTIVERSO_C_API_TABLE_CALL_H_
