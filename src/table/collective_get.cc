#include "table/collective_get.h"

#include "base/text.h"

namespace multiverso {
namespace {

Status Meet(const Table& table, const WaitLimit& limit) {
  Group* const workers = table.group()->workers();
  const int64_t id = table.id();
  workers->Arrive(CollectiveKind::kCollectiveGet, &id, sizeof(id));
  return workers->Meet(limit);
}

Status CheckSameTable(const Table& table) {
  const Group* const workers = table.group()->workers();
  for (const int member : workers->present()) {
    const auto id = workers->deposit(member).Read<int64_t>();
    if (id == table.id()) continue;
    return Status(Code::kMismatch,
                  StrCat("the ranks did not make the same call: rank ", table.group()->rank(),
                         " called get(sync=True) of table number ", table.id(), ", rank ", member,
                         " of table number ", id));
  }
  return Status::Ok();
}

}  // namespace

Status CollectiveGet(Table* table, const Request& get, const WaitLimit& limit) {
  MV_RETURN_IF_NOT_OK(Meet(*table, limit));
  MV_RETURN_IF_NOT_OK(CheckSameTable(*table));
  MV_RETURN_IF_NOT_OK(table->RunPastMode(get, limit));
  return Meet(*table, limit);
}

}  // namespace multiverso
