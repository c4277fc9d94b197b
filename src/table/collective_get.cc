#include "table/collective_get.h"

#include "base/text.h"

namespace multiverso {
namespace {

// Sends the table's number: a get on another table is not the same call.
Status AwaitWorkers(Table* table, const WaitLimit& limit) {
  const int64_t id = table->id();
  Group* const workers = table->group()->workers();
  workers->Arrive(CollectiveKind::kCollectiveGet, &id, sizeof(id));
  return workers->Meet(limit);
}

Status CheckSameTable(Table* table) {
  const NodeGroup* const group = table->group();
  const Group* const workers = table->group()->workers();
  for (const int member : workers->present()) {
    const auto id = workers->deposit(member).Read<int64_t>();
    if (id == table->id()) continue;
    return Status(Code::kMismatch, StrCat("the ranks did not make the same call: rank ",
                                          group->rank(), " called get(sync=True) of table number ",
                                          table->id(), ", rank ", member, " of table number ", id));
  }
  return Status::Ok();
}

Status Read(Table* table, const int64_t* row_ids, int64_t num_ids, void* out,
            const WaitLimit& limit) {
  if (!table->spans_nodes()) {
    Progress progress;
    return row_ids == nullptr ? table->Get(out, &progress, limit)
                              : table->GetRows(row_ids, num_ids, out, &progress, limit);
  }
  TableRequest request;
  request.kind = row_ids == nullptr ? RequestKind::kGet : RequestKind::kGetRows;
  request.row_ids = row_ids;
  request.num_ids = num_ids;
  request.out = out;
  return RunToEnd(table->StartAtServers(request, limit.deadline).get(), limit.interrupt);
}

}  // namespace

Status CollectiveGet(Table* table, const int64_t* row_ids, int64_t num_ids, void* out,
                     const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(AwaitWorkers(table, limit));
  MV_RETURN_IF_NOT_OK(CheckSameTable(table));
  MV_RETURN_IF_NOT_OK(Read(table, row_ids, num_ids, out, limit));
  return AwaitWorkers(table, limit);
}

}  // namespace multiverso
