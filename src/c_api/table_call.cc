#include "c_api/table_call.h"

#include <string>
#include <string_view>

#include "base/text.h"
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

Status RunCollectiveGet(TableEntry* entry, const Request& get, int64_t count) {
  MV_RETURN_IF_NOT_OK(CheckNotInInterrupt());
  const CallGuard guard(&entry->owner->in_collective_call);
  MV_RETURN_IF_NOT_OK(guard.Check("session"));
  return RunWaiting(*entry, NameOf(get.kind), RecordCollectiveGet(*entry->table, count),
                    /*is_collective=*/true, [&](WaitLimit limit) -> Status {
                      MV_RETURN_IF_NOT_OK(Drain(*entry, &limit));
                      return CollectiveGet(entry->table, get, limit);
                    });
}

}  // namespace multiverso::c_api
