#include "session/session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "session/saving.h"

namespace multiverso {
namespace {

constexpr auto kLinger = std::chrono::seconds(1);

// One meeting of everybody: all of a barrier, and of a shutdown.
class Meeting : public Operation {
 public:
  Meeting(RankContext* group, CollectiveKind kind, SyncPointCheck fence, Instant deadline)
      : Operation(deadline), group_(group), fence_(std::move(fence)) {
    group_->world()->BeginAllgather(kind, &fence_.mine(), sizeof(SyncPointArrival));
  }
  Status Step(const WaitLimit& limit) override {
    MV_RETURN_IF_NOT_OK(group_->world()->Wait(limit));
    return fence_.Check(*group_->world(), 0, limit);
  }
  void Cancel(const std::string& reason) override {
    group_->state()->Abort(Status(Code::kAborted, reason));
  }

 protected:
  RankContext* group_;

 private:
  SyncPointCheck fence_;
};

class ClosingMeeting final : public Meeting {
 public:
  // `was_over`: this rank knew before that the session had been given up. `rounds` may be null.
  ClosingMeeting(RankContext* group, SyncPointCheck fence, RoundService* rounds,
                 Checkpointing* checkpointing, Instant deadline, bool was_over)
      : Meeting(group, CollectiveKind::kClose, std::move(fence), deadline),
        rounds_(rounds),
        checkpointing_(checkpointing),
        save_end_(checkpointing),
        was_over_(was_over) {
    if (group->control_channel() != nullptr) group->control_channel()->AnnounceClose();
  }
  Status Step(const WaitLimit& limit) override {
    Status status;
    if (!has_met_) {
      status = Meeting::Step(limit);
      has_met_ = status.ok();
    }
    // What this node has to pass on to others it does before it goes.
    if (has_met_ && rounds_ != nullptr) status = rounds_->Settle(limit);
    // The failure of a save, when all have heard of it, is no reason to stay.
    if (has_met_ && status.ok()) {
      status = save_end_.Step(limit);
      if (!status.ok() && !status.pending() && checkpointing_->job == nullptr) {
        group_->state()->Close();
        return status;
      }
    }
    if (has_met_ && status.ok()) status = Linger(limit);
    if (status.pending()) return status;
    if (status.ok()) {
      group_->state()->Close();
    } else {
      group_->state()->Leave("shut down after an error");
    }
    // A rank that knows that the session was given up has nobody left to meet.
    return was_over_ ? Status::Ok() : status;
  }

 private:
  // Without lost ranks, processes end when MPI does, on all nodes. With some they end each for
  // itself, and the messages that another node needs for the meeting just held may be lost with
  // them. So whoever has met stays until all nodes have said that they have, or for a moment.
  Status Linger(const WaitLimit& limit) {
    Group* const world = group_->world();
    if (!linger_until_.has_value()) {
      const bool some_lost = world->participants().size() < world->members().size();
      if (!some_lost || !group_->members().spans_nodes()) return Status::Ok();
      linger_until_ = Clock::now() + kLinger;
      world->BeginAllgather(CollectiveKind::kClose);
    }
    if (Clock::now() >= *linger_until_) return Status::Ok();
    const Instant slice = std::min(limit.slice_end, *linger_until_);
    const Status met = world->Wait(WaitLimit{Instant::max(), slice});
    // Who does not come any more has met, too.
    return met.pending() && Clock::now() < *linger_until_ ? met : Status::Ok();
  }

  RoundService* rounds_;
  Checkpointing* checkpointing_;
  SaveEnd save_end_;
  bool was_over_;
  bool has_met_ = false;
  std::optional<Instant> linger_until_;
};

}  // namespace

Session::Session(const SessionOptions& options, std::unique_ptr<Transport> transport,
                 Membership members, std::unique_ptr<RankContext> group,
                 std::unique_ptr<NodeService> service, std::unique_ptr<Heartbeat> heartbeat)
    : options_(options),
      transport_(std::move(transport)),
      members_(std::move(members)),
      group_(std::move(group)),
      service_(std::move(service)),
      heartbeat_(std::move(heartbeat)) {
  checkpointing_.files = options.files;
  checkpointing_.group = group_.get();
}

Session::~Session() = default;

std::unique_ptr<Operation> Session::StartBarrier() {
  return StartMeeting(CollectiveKind::kBarrier);
}

std::unique_ptr<Operation> Session::StartMeeting(CollectiveKind call) {
  SyncPointCheck fence = ComeToFence(call);
  return std::make_unique<Meeting>(group_.get(), call, std::move(fence), NextDeadline());
}

std::unique_ptr<Operation> Session::StartSave(const CheckpointRequest& request) {
  auto fence = StartMeeting(CollectiveKind::kSave);
  return std::make_unique<Saving>(&checkpointing_, std::move(fence), request, TablesHere(),
                                  next_table_, options_.mode.mode, NextDiskDeadline());
}

std::unique_ptr<Operation> Session::StartSaveWait() {
  auto fence = StartMeeting(CollectiveKind::kSaveWait);
  return std::make_unique<SaveWait>(&checkpointing_, std::move(fence), NextDiskDeadline());
}

std::unique_ptr<Loading> Session::StartLoad(const CheckpointRequest& request) {
  auto fence = StartMeeting(CollectiveKind::kLoad);
  return std::make_unique<Loading>(&checkpointing_, std::move(fence), request, TablesHere(),
                                   next_table_, NextDiskDeadline());
}

Tables Session::TablesHere() {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  return tables_;
}

Instant Session::NextDiskDeadline() {
  int64_t bytes = 0;
  for (const auto& table : TablesHere()) {
    bytes += table->spec().bytes() * (2 + table->state_slots());
  }
  return NextDeadline() + TimeForDisk(bytes);
}

std::unique_ptr<Operation> Session::StartClose() {
  const bool was_over = group_->state()->IsAbortKnown();
  SyncPointCheck fence = ComeToFence(CollectiveKind::kClose);
  const Instant deadline = checkpointing_.job == nullptr ? NextDeadline() : NextDiskDeadline();
  return std::make_unique<ClosingMeeting>(group_.get(), std::move(fence), table_context().rounds,
                                          &checkpointing_, deadline, was_over);
}

std::unique_ptr<TableCreation> Session::StartTable(TableSpec spec, const void* init_value) {
  SyncPointCheck fence = ComeToFence(CollectiveKind::kCreateTable);
  // Counted when it has succeeded, as it does on all ranks or on none.
  const int64_t id = next_table_;
  if (spec.name[0] == '\0') CopyText(spec.name, StrCat("table ", id));
  return std::make_unique<TableCreation>(spec, id, init_value, table_context(), std::move(fence),
                                         NextDeadline());
}

SyncPointCheck Session::ComeToFence(CollectiveKind call) {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  const SyncPoint fence{++fences_, NameOf(call), call == CollectiveKind::kClose};
  for (const auto& table : tables_) table->ReachSyncPoint(fence);
  if (!members_.spans_nodes()) return SyncPointCheck();
  SyncPointArrival mine = fence.is_last ? released_adds_ : released_;
  for (const auto& table : tables_) mine.Count(table->id(), table->CallsBefore(fence));
  mine.is_worker = members_.is_worker() ? 1 : 0;
  mine.has_finished = has_finished_ ? 1 : 0;
  return SyncPointCheck(group_.get(), mine, fence.is_last, [this, fence] {
    const std::lock_guard<std::mutex> tables_guard(tables_mutex_);
    Status all;
    for (const auto& table : tables_) {
      const Status status = table->CompareAt(fence);
      if (!status.ok() && !status.pending()) return status;
      if (status.pending()) all = status;
    }
    return all;
  });
}

std::unique_ptr<Operation> Session::StartAggregate(DType dtype, void* data, int64_t count) {
  if (members_.spans_nodes() && members_.survives_losses()) {
    return std::make_unique<RelayAggregation>(group_.get(), dtype, data, count, NextDeadline());
  }
  if (members_.spans_nodes()) {
    if (aggregate_link_ == nullptr) aggregate_link_ = SpanningAggregation::MakeLink(group_.get());
    return std::make_unique<SpanningAggregation>(group_.get(), aggregate_link_.get(), dtype, data,
                                                 count, NextDeadline());
  }
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
  released_.Count(table->id(), table->CallsBefore(SyncPoint{0, "", /*is_last=*/false}));
  released_adds_.Count(table->id(), table->CallsBefore(SyncPoint{0, "", /*is_last=*/true}));
  table->Depart();
  if (table->is_on_other_nodes()) service_->shards()->Release(table);
  tables_.erase(found);
}

}  // namespace multiverso
