#include "table/collective_get.h"

#include "base/text.h"

namespace multiverso {

CollectiveGet::CollectiveGet(Table* table, const int64_t* row_ids, int64_t num_ids, void* out,
                             Instant deadline)
    : Operation(deadline), table_(table), row_ids_(row_ids), num_ids_(num_ids), out_(out) {
  Arrive();
}

void CollectiveGet::Cancel(const std::string& reason) {
  if (reading_ != nullptr) reading_->Cancel(reason);
  table_->group()->state()->Abort(Status(Code::kAborted, reason));
}

void CollectiveGet::Arrive() {
  const int64_t id = table_->id();
  table_->group()->workers()->BeginAllgather(CollectiveKind::kCollectiveGet, &id, sizeof(id));
}

Status CollectiveGet::CheckSameTable() const {
  const RankContext* const group = table_->group();
  const Group* const workers = table_->group()->workers();
  for (const int member : workers->participants()) {
    const auto id = workers->payload(member).Read<int64_t>();
    if (id == table_->id()) continue;
    return Status(Code::kMismatch,
                  StrCat("the ranks did not make the same call: rank ", group->members().rank(),
                         " called get(sync=True) of table number ", table_->id(), ", rank ", member,
                         " of table number ", id));
  }
  return Status::Ok();
}

Status CollectiveGet::Read(const WaitLimit& limit) {
  if (!table_->spans_nodes()) {
    return row_ids_ == nullptr ? table_->Get(out_, &progress_, limit)
                               : table_->GetRows(row_ids_, num_ids_, out_, &progress_, limit);
  }
  if (reading_ == nullptr) {
    TableRequest request;
    request.kind = row_ids_ == nullptr ? RequestKind::kGet : RequestKind::kGetRows;
    request.row_ids = row_ids_;
    request.num_ids = num_ids_;
    request.out = out_;
    reading_ = table_->StartAtServers(request, deadline());
  }
  return reading_->Step(limit);
}

Status CollectiveGet::Step(const WaitLimit& limit) {
  Group* const workers = table_->group()->workers();
  switch (phase_) {
    case Phase::kBefore:
      MV_RETURN_IF_NOT_OK(workers->Wait(limit));
      MV_RETURN_IF_NOT_OK(CheckSameTable());
      phase_ = Phase::kRead;
      [[fallthrough]];
    case Phase::kRead:
      MV_RETURN_IF_NOT_OK(Read(limit));
      reading_.reset();
      Arrive();
      phase_ = Phase::kAfter;
      [[fallthrough]];
    case Phase::kAfter:
      return workers->Wait(limit);
  }
  return Status(Code::kInternal, "collective get in no phase");
}

}  // namespace multiverso
