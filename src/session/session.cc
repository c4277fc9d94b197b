#include "session/session.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace multiverso {
namespace {

// One meeting of everybody: all of a barrier, and of a shutdown.
class Meeting : public Operation {
 public:
  Meeting(NodeGroup* group, CallKind kind, Instant deadline) : Operation(deadline), group_(group) {
    group_->everybody()->Arrive(kind);
  }
  Status Step(const WaitLimit& limit) override { return group_->everybody()->Meet(limit); }
  void Cancel(const std::string& reason) override { group_->Abort(Status(Code::kAborted, reason)); }

 protected:
  NodeGroup* group_;
};

class ClosingMeeting final : public Meeting {
 public:
  // `was_over`: this rank knew before that the session had been given up.
  ClosingMeeting(NodeGroup* group, Instant deadline, bool was_over)
      : Meeting(group, CallKind::kClose, deadline), was_over_(was_over) {}
  Status Step(const WaitLimit& limit) override {
    const Status status = Meeting::Step(limit);
    if (status.pending()) return status;
    if (status.ok()) {
      group_->Close();
    } else {
      group_->Leave("shut down after an error");
    }
    // A rank that knows that the session was given up has nobody left to meet.
    return was_over_ ? Status::Ok() : status;
  }

 private:
  bool was_over_;
};

}  // namespace

Session::Session(const SessionOptions& options, std::unique_ptr<Transport> transport,
                 Membership members, std::unique_ptr<NodeGroup> group,
                 std::unique_ptr<NodeService> service)
    : options_(options),
      transport_(std::move(transport)),
      members_(std::move(members)),
      group_(std::move(group)),
      service_(std::move(service)) {}

Session::~Session() = default;

std::unique_ptr<Operation> Session::StartBarrier() {
  ComeToFence(CallKind::kBarrier);
  return std::make_unique<Meeting>(group_.get(), CallKind::kBarrier, NextDeadline());
}

std::unique_ptr<Operation> Session::StartClose() {
  const bool was_over = group_->AbortIsKnown();
  ComeToFence(CallKind::kClose);
  return std::make_unique<ClosingMeeting>(group_.get(), NextDeadline(), was_over);
}

std::unique_ptr<TableCreation> Session::StartTable(TableSpec spec, const void* init_value) {
  ComeToFence(CallKind::kCreateTable);
  // Counted when it has succeeded, as it does on all ranks or on none.
  const int64_t id = next_table_;
  if (spec.name[0] == '\0') CopyText(spec.name, StrCat("table ", id));
  return std::make_unique<TableCreation>(spec, id, init_value, table_context(), NextDeadline());
}

void Session::ComeToFence(CallKind call) {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  const Fence fence{++fences_, NameOf(call), call == CallKind::kClose};
  for (const auto& table : tables_) table->ComeTo(fence);
}

std::unique_ptr<Operation> Session::StartAggregate(DType dtype, void* data, int64_t count) {
  return std::make_unique<Aggregation>(group_.get(), &next_aggregation_, dtype, data, count,
                                       NextDeadline());
}

void Session::Finish() {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  has_finished_ = true;
  for (const auto& table : tables_) table->Finish();
}

Table* Session::KeepTable(std::shared_ptr<Table> table) {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  ++next_table_;
  if (has_finished_) table->Finish();
  tables_.push_back(std::move(table));
  return tables_.back().get();
}

void Session::ReleaseTable(Table* table) {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  const auto found = std::find_if(tables_.begin(), tables_.end(),
                                  [&](const auto& kept) { return kept.get() == table; });
  if (found == tables_.end()) return;
  if (table->spans_nodes()) service_->shards()->Release(table);
  tables_.erase(found);
}

}  // namespace multiverso
