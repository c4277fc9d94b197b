#include "c_api/table_call.h"

#include <memory>
#include <string>
#include <string_view>

#include "base/text.h"
#include "c_api/pending.h"
#include "table/collective_get.h"

namespace multiverso::c_api {

Result<RequestKind> KindOf(const char* operation) {
  const std::string_view wanted = operation == nullptr ? "null" : operation;
  for (const RequestTraits& traits : kRequestTraits) {
    if (traits.operation != nullptr && wanted == traits.operation) return traits.kind;
  }
  std::string names;
  for (const RequestTraits& traits : kRequestTraits) {
    if (traits.operation != nullptr) names += StrCat(traits.operation, ", ");
  }
  return Status(Code::kValue, StrCat("operation: expected one of ", names, "received ", wanted));
}

Status RunWaiting(WaitingCall call, std::function<Status(const WaitLimit&)> body) {
  SessionEntry* const owner = call.use->owner;
  const Instant deadline = owner->session->NextDeadline();
  const auto held = std::make_shared<WaitingCall>(std::move(call));
  return RunCall(
      owner->wait_slice, [held, deadline, body = std::move(body)](Interrupt* interrupt) -> Status {
        const Table& table = *held->use->table;
        if (interrupt != nullptr && held->is_collective) {
          interrupt->OnAbort(
              [&table](const Status& reason) { table.context()->state()->Abort(reason); });
        }
        const Status status = body(WaitLimit::Until(deadline, interrupt));
        held->record->End(status.code());
        return status.ok() ? status : status.In(table.Where(held->name));
      });
}

Status RunCollectiveGet(TableUse use, const Request& get, int64_t count) {
  CallGuard guard(&use->owner->in_collective_call);
  MV_RETURN_IF_NOT_OK(guard.Check("session"));
  Table* const table = use->table;
  WaitingCall call{std::move(use), std::move(guard), NameOf(get.kind),
                   RecordCollectiveGet(*table, count), /*is_collective=*/true};
  const TableEntry* const entry = call.use.get();
  return RunWaiting(std::move(call), [table, get, entry](WaitLimit limit) -> Status {
    MV_RETURN_IF_NOT_OK(Drain(*entry, &limit));
    return CollectiveGet(table, get, limit);
  });
}

}  // namespace multiverso::c_api
