#include "calls/collective_get.h"

#include "base/text.h"
#include "group/collective_call.h"

namespace multiverso {
namespace {

// Waits for all workers. Each sends its table's number, which CheckSameTable compares, or its
// failure.
Status AwaitWorkers(Table* table, const Status& mine, const WaitLimit& limit) {
  const int64_t id = table->id();
  return table->context()->workers()->Allgather(CollectiveKind::kCollectiveGet, mine, limit, &id,
                                                sizeof(id));
}

Status CheckSameTable(Table* table) {
  const Group* const workers = table->context()->workers();
  for (const int member : workers->participants()) {
    const auto id = workers->payload(member).Read<int64_t>();
    if (id == table->id()) continue;
    return workers->Mismatch(StrCat("the ranks did not make the same call: rank ",
                                    table->members().rank(),
                                    " called get(sync=True) on table number ", table->id(),
                                    ", rank ", member, " on table number ", id));
  }
  return Status::Ok();
}

}  // namespace

Status CollectiveGet(Table* table, const Request& get, const WaitLimit& limit) {
  CollectiveCall call(table->context(), CollectiveKind::kCollectiveGet);
  MV_ASSIGN_OR_RETURN(const bool takes_part, call.Enter(limit));
  if (!takes_part) return table->without_mode()->Run(get, limit);
  MV_RETURN_IF_NOT_OK(call.Noted(AwaitWorkers(table, Status::Ok(), limit)));
  MV_RETURN_IF_NOT_OK(call.Noted(CheckSameTable(table)));
  // All workers are in this call, so the get needs none of the mode's waits.
  return call.Noted(AwaitWorkers(table, table->without_mode()->Run(get, limit), limit));
}

}  // namespace multiverso
