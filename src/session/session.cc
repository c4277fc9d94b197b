#include "session/session.h"

#include <algorithm>
#include <utility>

#include "base/crc.h"
#include "base/log.h"
#include "base/text.h"
#include "calls/table_creation.h"
#include "group/collective_call.h"
#include "node/find_sessions.h"
#include "saves/loading.h"
#include "saves/saving.h"
#include "session/publishing.h"
#include "shard/storage.h"
#include "table/table_header.h"

namespace multiverso {
namespace {

// Maps the tables of the session, by their numbers, which are among the open files of the other
// ranks.
std::map<int64_t, Segment> FindTables(const RankContext& context) {
  const NodeMemory& memory = *context.memory();
  std::map<int64_t, Segment> tables;
  for (int rank = 0; rank < context.members().size(); ++rank) {
    if (rank == context.members().rank() || context.peers()->IsLost(rank)) continue;
    const int64_t pid = memory.slot(rank).pid;
    for (const std::string& path :
         SegmentsOf(pid, TableHeader::kMagic, ShardStorage::kHeaderRoomOffset)) {
      Result<Segment> segment = Segment::OpenFound(path, /*is_writable=*/true);
      if (!segment.ok()) continue;
      const auto* const header = reinterpret_cast<const TableHeader*>(
          segment.value().data() + ShardStorage::kHeaderRoomOffset);
      if (header->session != memory.control()->session) continue;
      const int64_t id = header->id;
      tables.emplace(id, std::move(segment.value()));
    }
  }
  return tables;
}

// Returns the failure of a call that others made in that folder, which says nothing about a file.
Status AboutFolder(const std::string& folder, const Status& failure) {
  const bool is_of_files =
      failure.code() == Code::kCheckpointIo || failure.code() == Code::kCheckpointCorrupt;
  return is_of_files ? Status(failure.code(), failure.text(), FileFault{folder}) : failure;
}

}  // namespace

Session::Session(const SessionOptions& options, std::unique_ptr<Transport> transport,
                 Membership members, std::unique_ptr<RankContext> context,
                 std::unique_ptr<NodeService> service, std::unique_ptr<Heartbeat> heartbeat)
    : options_(options),
      timeout_(options.timeout),
      transport_(std::move(transport)),
      members_(std::move(members)),
      context_(std::move(context)),
      service_(std::move(service)),
      heartbeat_(std::move(heartbeat)) {
  checkpointing_.files = options.files;
  checkpointing_.context = context_.get();
}

Session::~Session() = default;

WaitLimit Session::LimitOf(Instant deadline, Interrupt* interrupt) {
  if (interrupt != nullptr) interrupt->OnAbort(context_->state());
  return WaitLimit::Until(deadline, interrupt);
}

Status Session::AwaitAll(CollectiveKind call, const WaitLimit& limit) {
  SyncPointCheck sync_point = ReachSyncPoint(call);
  Group* const world = context_->world();
  world->BeginAllgather(call, &sync_point.mine(), sizeof(SyncPointArrival));
  MV_RETURN_IF_NOT_OK(world->Wait(limit));
  return sync_point.Check(*world, 0, limit);
}

Status Session::Barrier(Interrupt* interrupt) {
  const WaitLimit limit = LimitOf(NextDeadline(), interrupt);
  CollectiveCall call(context_.get(), CollectiveKind::kBarrier);
  MV_ASSIGN_OR_RETURN(const bool takes_part, call.Enter(limit));
  return takes_part ? call.Noted(AwaitAll(CollectiveKind::kBarrier, limit)) : Status::Ok();
}

Status Session::Save(const AgreedCall& request, Interrupt* interrupt) {
  const WaitLimit limit = LimitOf(NextDiskDeadline(), interrupt);
  CollectiveCall call(context_.get(), CollectiveKind::kSave);
  const Result<bool> takes_part = call.Enter(limit);
  if (!takes_part.ok()) return AboutFolder(request.folder, takes_part.status());
  if (!takes_part.value()) return Status::Ok();
  Tables tables = TablesHere();
  MV_RETURN_IF_NOT_OK(call.Noted(AwaitAll(CollectiveKind::kSave, limit)));
  // The checkpoint will have the rows, but the program must learn that the next session will not.
  for (const auto& shard : on_disk_) {
    const Status in_place = shard->CheckFile();
    if (!in_place.ok()) LogWarning(in_place.text());
  }
  AgreedCall wanted = request;
  // The ranks of an elastic session may end while they write in the background.
  if (members_.is_elastic()) wanted.in_background = false;
  return call.Noted(Saving(&checkpointing_, wanted, options_.mode.mode)
                        .Run(std::move(tables), next_table_, limit));
}

Status Session::SaveWait(Interrupt* interrupt) {
  const WaitLimit limit = LimitOf(NextDiskDeadline(), interrupt);
  CollectiveCall call(context_.get(), CollectiveKind::kSaveWait);
  MV_ASSIGN_OR_RETURN(const bool takes_part, call.Enter(limit));
  if (!takes_part) return Status::Ok();
  MV_RETURN_IF_NOT_OK(call.Noted(AwaitAll(CollectiveKind::kSaveWait, limit)));
  return call.Noted(EndSave(&checkpointing_, limit));
}

Result<int64_t> Session::Load(const AgreedCall& request, Interrupt* interrupt) {
  const WaitLimit limit = LimitOf(NextDiskDeadline(), interrupt);
  CollectiveCall call(context_.get(), CollectiveKind::kLoad);
  const Result<bool> takes_part = call.Enter(limit);
  if (!takes_part.ok()) return AboutFolder(request.folder, takes_part.status());
  std::atomic<int64_t>& loaded_step = context_->memory()->control()->calls.loaded_step;
  if (!takes_part.value()) return loaded_step.load();
  Tables tables = TablesHere();
  MV_RETURN_IF_NOT_OK(call.Noted(AwaitAll(CollectiveKind::kLoad, limit)));
  Result<int64_t> step =
      Loading(&checkpointing_, request).Run(std::move(tables), next_table_, limit);
  MV_RETURN_IF_NOT_OK(call.Noted(step.status()));
  loaded_step.store(step.value());
  return step;
}

Result<int64_t> Session::Publish(int64_t step, Interrupt* interrupt) {
  if (members_.name().empty()) {
    return Status(
        Code::kState,
        "publish: expected a session with a name, which readers find and whose tables have "
        "room for what is published, received none; open it with mv.session(name=\"train\") or "
        "mv.init(name=\"train\")");
  }
  const WaitLimit limit = LimitOf(NextDeadline(), interrupt);
  CollectiveCall call(context_.get(), CollectiveKind::kPublish);
  MV_ASSIGN_OR_RETURN(const bool takes_part, call.Enter(limit));
  if (!takes_part) {
    return static_cast<int64_t>(context_->memory()->control()->published.load());
  }
  Tables tables = TablesHere();
  MV_RETURN_IF_NOT_OK(call.Noted(AwaitAll(CollectiveKind::kPublish, limit)));
  Result<int64_t> version =
      multiverso::Publish(context_.get(), step, std::move(tables), next_table_, limit);
  MV_RETURN_IF_NOT_OK(call.Noted(version.status()));
  return version;
}

Tables Session::TablesHere() {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  return tables_;
}

Instant Session::NextDiskDeadline() {
  int64_t bytes = 0;
  for (const auto& table : TablesHere()) {
    bytes += table->spec().bytes() * (2 + table->shard()->state_slots());
  }
  return NextDeadline() + TimeForDisk(bytes);
}

void Session::FindEarlierTables() {
  earlier_tables_.merge(FindTables(*context_));
  earlier_tables_.erase(earlier_tables_.begin(), earlier_tables_.lower_bound(next_table_));
}

Result<std::shared_ptr<Table>> Session::CreateTable(TableSpec spec, const void* init_value,
                                                    Interrupt* interrupt,
                                                    const std::string& folder) {
  // KeepTable increments next_table_ after success, so the numbers are the same on all ranks.
  const int64_t id = next_table_;
  if (spec.name[0] == '\0') CopyText(spec.name, StrCat("table ", id));
  if (!folder.empty()) {
    spec.backing = Crc32c(folder.data(), static_cast<int64_t>(folder.size())) | 1U;
  }
  if (spec.is_hash()) TableShard::SizeForKeys(members_, &spec);
  has_init_value_ = init_value != nullptr;
  const WaitLimit limit = LimitOf(NextDeadline(), interrupt);
  TableCreation creation(spec, id, init_value, table_context(), folder);
  CollectiveCall call(context_.get(), CollectiveKind::kCreateTable);
  MV_ASSIGN_OR_RETURN(const bool takes_part, call.Enter(limit));
  if (takes_part) {
    MV_RETURN_IF_NOT_OK(
        call.Noted(creation.Run(ReachSyncPoint(CollectiveKind::kCreateTable), limit)));
  } else {
    // The others may have been creating the table while this rank joined.
    if (earlier_tables_.count(id) == 0) FindEarlierTables();
    const auto found = earlier_tables_.find(id);
    if (found == earlier_tables_.end()) {
      return Status(Code::kState, StrCat("the table number ", id,
                                         " of the session is not there any more: the ranks that "
                                         "created it have ended"));
    }
    Segment segment = std::move(found->second);
    earlier_tables_.erase(found);
    MV_RETURN_IF_NOT_OK(creation.Attach(std::move(segment)));
  }
  return creation.TakeTable();
}

SyncPointCheck Session::ReachSyncPoint(CollectiveKind call) {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  // The number is that of the others even after a call that failed because it was none of theirs.
  const SyncPoint sync_point{context_->world()->calls() + 1, NameOf(call),
                             call == CollectiveKind::kClose};
  // In async mode no call on a table has to be the same on all workers.
  if (options_.mode.mode == Mode::kAsync) return SyncPointCheck();
  for (const auto& table : tables_) table->consistency()->ReachSyncPoint(sync_point);
  if (!members_.spans_nodes()) return SyncPointCheck();
  SyncPointArrival mine = sync_point.is_last ? released_at_close_ : released_;
  for (const auto& table : tables_)
    mine.Count(table->id(), table->consistency()->CallsBefore(sync_point));
  mine.is_worker = members_.is_worker() ? 1 : 0;
  mine.has_finished = has_finished_ ? 1 : 0;
  return SyncPointCheck(context_.get(), mine, sync_point.is_last, [this, sync_point] {
    const std::lock_guard<std::mutex> tables_guard(tables_mutex_);
    Status result;
    for (const auto& table : tables_) {
      const Status status = table->consistency()->CompareAt(sync_point);
      if (!status.ok() && !status.pending()) return status;
      if (status.pending()) result = status;
    }
    return result;
  });
}

Status Session::Aggregate(const Aggregation::Array& array, Interrupt* interrupt) {
  if (!members_.is_worker()) {
    return Status(Code::kState, "aggregate: expected a worker, this rank is a server");
  }
  const WaitLimit limit = LimitOf(NextDeadline(), interrupt);
  CollectiveCall call(context_.get(), CollectiveKind::kAggregate);
  MV_ASSIGN_OR_RETURN(const bool takes_part, call.Enter(limit));
  if (!takes_part) {
    return Status(Code::kState, StrCat("aggregate: the sum of this call is over: rank ",
                                       members_.rank(), " joined the session later"));
  }
  // Ranks that joined later must use the same area as the others.
  if (members_.is_elastic()) aggregation_.area = static_cast<int>(call.number() % 2);
  Aggregation aggregation(context_.get(), &aggregation_, array, members_.spans_nodes());
  return Completed(call.Noted(aggregation.Run(limit)));
}

Status Session::Completed(const Status& result) const {
  if (!result.ok()) return result;
  return context_->state()->CheckRunning(/*was_waiting=*/true);
}

Status Session::Move(const Transfer::Call& call, Interrupt* interrupt) {
  const char* const name = NameOf(call.kind);
  if (!members_.is_worker()) {
    return Status(Code::kState, StrCat(name, ": expected a worker, this rank is a server"));
  }
  MV_RETURN_IF_NOT_OK(CheckSupported(members_.features().With(Feature::kMove)).In(name));
  const WaitLimit limit = LimitOf(NextDeadline(), interrupt);
  return Completed(Transfer(context_.get(), &aggregation_, call).Run(limit));
}

void Session::Finish() {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  has_finished_ = true;
  for (const auto& table : tables_) table->consistency()->Finish();
}

Table* Session::KeepTable(std::shared_ptr<Table> table) {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  ++next_table_;
  if (has_finished_) table->consistency()->Finish();
  if (table->spec().is_on_disk()) on_disk_.push_back(table->shared_here());
  unused_since_ = has_init_value_ ? 0 : context_->memory()->recorder()->calls.load();
  tables_.push_back(std::move(table));
  return tables_.back().get();
}

void Session::ReleaseTable(Table* table) {
  const std::lock_guard<std::mutex> guard(tables_mutex_);
  const auto found = std::find_if(tables_.begin(), tables_.end(),
                                  [&](const auto& kept) { return kept.get() == table; });
  if (found == tables_.end()) return;
  released_.Count(table->id(),
                  table->consistency()->CallsBefore(SyncPoint{0, "", /*is_last=*/false}));
  released_at_close_.Count(table->id(),
                           table->consistency()->CallsBefore(SyncPoint{0, "", /*is_last=*/true}));
  table->consistency()->Depart();
  // In an elastic session, other ranks may still use the table, and joiners look for it. At the end
  // of the session its tables are released, too, but readers keep what it has published.
  const bool is_open = context_->memory()->own_slot().state.load() == RankSlot::kAlive;
  if (table->here()->header() != nullptr && !members_.is_elastic() && is_open) {
    table->here()->header()->is_released.store(1);
  }
  if (service_ != nullptr) service_->shards()->Release(*table->here());
  // An exception of the program may have ended the creation of the only rank's table. If the
  // program has made no call since, and has given no values, the files are as before.
  const bool is_unused = table->id() == next_table_ - 1 && unused_since_ != 0 &&
                         context_->memory()->recorder()->calls.load() == unused_since_;
  const auto file = std::find(on_disk_.begin(), on_disk_.end(), table->shared_here());
  if (file != on_disk_.end() && members_.size() == 1 && is_open && is_unused) {
    (*file)->CancelUseOfFile();
    on_disk_.erase(file);
  }
  tables_.erase(found);
}

}  // namespace multiverso
