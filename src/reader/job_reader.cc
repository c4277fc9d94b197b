#include "reader/job_reader.h"

#include <algorithm>

#include "base/checked.h"
#include "base/copy_bytes.h"
#include "base/json.h"
#include "base/text.h"
#include "calls/publication.h"
#include "memory/futex.h"
#include "numbers/half.h"
#include "reader/value_changes.h"
#include "table/table_shard.h"

namespace multiverso {
Result<std::unique_ptr<JobReader>> JobReader::Attach(const std::string& name, int64_t pid) {
  if (!Segment::CanBeFound()) {
    return CheckSupported({Feature::kAttach, Feature::kNotLinux});
  }
  std::unique_ptr<JobReader> found;
  std::string others;  // for a name that was mistyped
  bool is_unnamed = false;
  for (FoundSession& session : FindSessions(pid)) {
    is_unnamed = is_unnamed || (session.name().empty() && session.CountAlive() > 0);
    if (session.name().empty() || session.CountAlive() == 0) continue;
    if (pid == 0 && session.name() != name) {
      others += StrCat(others.empty() ? "; there are: " : ", ", "'", session.name(), "'");
      continue;
    }
    const NodeControl& job = *session.control();
    // The nodes of a session on one machine have a segment each; the reader takes the first node.
    const bool is_same = found != nullptr && found->control_->session == job.session;
    if (is_same && found->control_->node < job.node) continue;
    if (found != nullptr && !is_same) {
      return Status(Code::kState, StrCat("there are several sessions named '", name,
                                         "' on this machine: pass the process id of a rank"));
    }
    found.reset(new JobReader(std::move(session)));
  }
  if (found != nullptr) {
    found->FindTables();
    return found;
  }
  if (pid == 0) {
    if (is_unnamed && others.empty()) {
      others =
          StrCat("; there is one without a name: open it with mv.session(name=\"", name, "\")");
    }
    return Status(Code::kState, StrCat("no other process of this user on this machine has a "
                                       "session named '",
                                       name, "'", others));
  }
  return Status(Code::kState,
                StrCat("process ", pid, " has no session",
                       is_unnamed ? " with a name: open it with mv.session(name=\"train\")" : ""));
}

std::string JobReader::EndReason() const {
  if (control_->abort.load(std::memory_order_acquire) == NodeControl::kSet) {
    return TextOf(control_->abort_reason);
  }
  // The first rank that was lost is the reason. Others have lost it, or were ended after it.
  std::vector<int> ranks;
  const int first = control_->first_lost.load(std::memory_order_acquire) - 1;
  if (control_->options.on_loss == OnLoss::kFail && first >= 0 && first < control_->num_ranks) {
    ranks.push_back(first);
  }
  for (int i = 0; i < session_.RanksHere(); ++i) ranks.push_back(session_.RankOf(i));
  for (const int rank : ranks) {
    const RankSlot& slot = control_->slots()[rank];
    const uint32_t state = slot.state.load(std::memory_order_acquire);
    if (state == RankSlot::kLeft) {
      return StrCat("rank ", rank, " left (", TextOf(slot.reason), ")");
    }
    if (slot.pid == 0) continue;  // It was on another node.
    if (state != RankSlot::kClosed) return StrCat("rank ", rank, " (process ", slot.pid, ") died");
  }
  return "it was shut down";
}

void JobReader::ForgetInChild() {
  pins_.ForgetInChild();
  session_.segment()->ForgetInChild();
  // Another thread may have been changing the list at the moment of the fork.
  if (!mutex_.try_lock()) return;
  for (const auto& table : tables_) table->segment.ForgetInChild();
  mutex_.unlock();
}

Status JobReader::CheckRunning() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!has_ended_) {
    const Instant now = Clock::now();
    bool is_any_joined = false;
    for (int local_rank = 0; local_rank < session_.RanksHere(); ++local_rank) {
      const uint32_t state = control_->slots()[session_.RankOf(local_rank)].state.load();
      is_any_joined = is_any_joined || state == RankSlot::kAlive;
    }
    if (is_any_joined && now < last_check_ + WaitLimit::kCheckInterval) return Status::Ok();
    last_check_ = now;
    for (int local_rank = 0; local_rank < session_.RanksHere(); ++local_rank) {
      if (IsAlive(local_rank)) return Status::Ok();
    }
    has_ended_ = true;
  }
  return Status(Code::kState, StrCat("the session '", TextOf(control_->options.name),
                                     "' has ended: ", EndReason()));
}

std::shared_ptr<JobReader::TableView> JobReader::Open(const std::string& path) const {
  Result<Segment> segment = Segment::OpenFound(path);
  auto view = std::make_shared<TableView>();
  if (!segment.ok() || segment->bytes() < kPage) return nullptr;
  view->segment = std::move(segment.value());
  char* const base = view->segment.data();
  view->header = reinterpret_cast<TableHeader*>(base + ShardStorage::kHeaderRoomOffset);
  TableHeader& header = *view->header;
  if (header.session != control_->session || !header.spec.Check().ok() ||
      !header.published_spec.Check().ok()) {
    return nullptr;
  }
  const ShardUser user{0, this, /*worker=*/-1, /*is_reader=*/true};
  const bool is_whole = header.rows.count() == header.spec.num_row;
  // In sync mode, only complete rounds may be read.
  if (is_whole && !control_->options.mode.sums_in_rounds()) {
    auto live = TableShard::MakeShard(header.spec, header.rows, header.num_workers, base, user);
    if (!live.ok()) return nullptr;
    view->live = std::move(live.value());
  }
  for (int i = 0; i < TableHeader::BuffersOf(header.published_spec); ++i) {
    const int64_t offset = header.buffers[i].offset;
    if (offset < kPage || offset >= view->segment.bytes()) return nullptr;
    auto copy = TableShard::MakeShard(header.published_spec, header.published_rows, /*workers=*/0,
                                      base + offset, user);
    if (!copy.ok()) return nullptr;
    view->copies[i] = std::move(copy.value());
  }
  return view;
}

void JobReader::FindTables() {
  const uint32_t created = control_->tables_created.load(std::memory_order_acquire);
  // A table that the session has released stays in the version that it has published last.
  const uint64_t published = control_->published.load(std::memory_order_acquire);
  const auto is_gone = [&](const auto& table) {
    return table->header->is_released.load() != 0 &&
           BufferWith(published, control_, *table->header) < 0;
  };
  tables_.erase(std::remove_if(tables_.begin(), tables_.end(), is_gone), tables_.end());
  if (created == tables_seen_) return;
  for (int local_rank = 0; local_rank < session_.RanksHere(); ++local_rank) {
    if (!IsAlive(local_rank)) continue;
    const int64_t pid = control_->slots()[session_.RankOf(local_rank)].pid;
    for (const std::string& path :
         SegmentsOf(pid, TableHeader::kMagic, ShardStorage::kHeaderRoomOffset)) {
      const std::shared_ptr<TableView> opened = Open(path);
      if (opened == nullptr || is_gone(opened)) continue;
      const bool is_known = std::any_of(tables_.begin(), tables_.end(), [&](const auto& table) {
        return table->header->id == opened->header->id;
      });
      if (!is_known) tables_.push_back(opened);
    }
    tables_seen_ = created;
    break;
  }
  std::sort(tables_.begin(), tables_.end(),
            [](const auto& a, const auto& b) { return a->header->id < b->header->id; });
}

std::shared_ptr<JobReader::TableView> JobReader::Find(int64_t table) {
  const std::lock_guard<std::mutex> guard(mutex_);
  FindTables();
  for (const auto& view : tables_) {
    if (view->header->id == table) return view;
  }
  return nullptr;
}

Result<std::string> JobReader::Json() {
  const Status running = CheckRunning();
  const std::lock_guard<std::mutex> guard(mutex_);
  FindTables();
  if (!running.ok() && tables_seen_ != control_->tables_created.load(std::memory_order_acquire)) {
    return running.In("cannot find the tables that were created after the last call of this view");
  }
  const uint64_t published = control_->published.load(std::memory_order_acquire);
  const auto describe = [&](const std::shared_ptr<TableView>& view) {
    const TableHeader& header = *view->header;
    const bool is_published = BufferWith(published, control_, header) >= 0;
    JsonObject object;
    object.Add("id", header.id).Add("name", TextOf(header.spec.name));
    object.Add("kind", header.spec.kind).Add("dtype", header.spec.dtype);
    object.Add("num_row", header.spec.num_row).Add("num_col", header.spec.num_col);
    object.Add("first_row", header.published_rows.first);
    object.Add("end_row", header.published_rows.end).Add("is_live", view->live != nullptr);
    object.Add("initial", header.spec.initializer.kind);
    return object.Add("is_published", is_published).Take();
  };
  JsonObject job;
  job.Add("name", TextOf(control_->options.name)).Add("version", published);
  job.Add("step", control_->steps[published % 2].load());
  return job.Add("tables", JsonList(tables_, describe)).Take().text;
}

Status JobReader::NotThere(int64_t table, uint64_t publication) const {
  // The version may have the table, if a later one is without it.
  if (publication != 0 && publication != control_->published.load()) return Status::Outdated();
  return Status(Code::kState, StrCat("table number ", table, " has been released"));
}

// Checks what a reader asks for. `rows` are those that this node has.
static Status CheckRequest(const TableSpec& spec, RowRange rows, const Request& request,
                           int64_t count) {
  const bool is_allowed =
      request.kind == RequestKind::kGet || request.kind == RequestKind::kGetRows ||
      request.kind == RequestKind::kGetKeys || request.kind == RequestKind::kKeysOfRows;
  if (!is_allowed || NeedsKeys(request.kind) != spec.is_hash()) {
    return Status(Code::kValue, StrCat("a reader of ", spec.Describe(), " cannot run '",
                                       NameOf(request.kind), "'"));
  }
  const int64_t element_bytes = ReturnsNumbers(request.kind) ? static_cast<int64_t>(sizeof(int64_t))
                                                             : SizeOf(spec.value_type());
  const bool has_ids = HasIds(request.kind);
  const int64_t num_rows = has_ids ? request.num_ids : rows.count();
  const int64_t columns = has_ids ? spec.bytes_per_id(request.kind) / element_bytes : spec.num_col;
  int64_t expected = 0;
  if (!CheckedMultiply(num_rows, columns, &expected) || count != expected) {
    return Status(Code::kValue, StrCat("expected ", num_rows, " rows of ", columns,
                                       " elements, received ", count, " elements"));
  }
  for (int64_t i = 0; has_ids && i < request.num_ids; ++i) {
    if (rows.Contains(spec.RowOfId(request.kind, request.row_ids[i]))) continue;
    return Status(Code::kIndex, StrCat(IsOfKeys(request.kind) ? "keys[" : "row_ids[", i,
                                       "]: expected a row of this node, ", rows.first, " to ",
                                       rows.end - 1, ", received ", request.row_ids[i]));
  }
  return Status::Ok();
}

Status JobReader::Run(int64_t table, uint64_t publication, const Request& request, int64_t count,
                      const WaitLimit& limit) {
  if (publication == 0 || publication > control_->published.load(std::memory_order_acquire)) {
    MV_RETURN_IF_NOT_OK(CheckRunning());
  }
  const std::shared_ptr<TableView> view = Find(table);
  if (view == nullptr) return NotThere(table, publication);
  if (publication == 0 && view->header->is_released.load() != 0)
    return NotThere(table, publication);
  TableHeader& header = *view->header;
  if (publication == 0 && view->live == nullptr) {
    const bool is_divided = header.rows.count() != header.spec.num_row;
    return CheckSupported({Feature::kReadCurrent, is_divided ? Feature::kNodes : Feature::kSync})
        .In(StrCat("table '", TextOf(header.spec.name), "'"));
  }
  const RowRange rows = publication == 0 ? header.rows : header.published_rows;
  const std::string where = StrCat("table '", TextOf(header.spec.name), "'");
  MV_RETURN_IF_NOT_OK(CheckRequest(header.spec, rows, request, count).In(where));
  if (publication == 0) return view->live->Run(request, limit);
  const int buffer = BufferWith(publication, control_, header);
  if (buffer < 0) {
    if (publication > control_->published.load()) {
      return Status(Code::kValue, StrCat("version: expected at most ", control_->published.load(),
                                         ", received ", publication));
    }
    return Status::Outdated();
  }
  MV_RETURN_IF_NOT_OK(view->copies[buffer]->Run(request, limit));
  return BufferWith(publication, control_, header) == buffer ? Status::Ok() : Status::Outdated();
}

Result<int64_t> JobReader::Compare(int64_t table, uint64_t publication, DType dtype, int64_t first,
                                   int64_t count, void* before, uint32_t* counts, uint16_t* places,
                                   void* values) {
  const std::shared_ptr<TableView> view = Find(table);  // keeps the memory during the call
  if (view == nullptr) return NotThere(table, publication);
  const TableHeader& header = *view->header;
  const TableSpec& spec = header.published_spec;
  const std::string where = StrCat("table '", TextOf(spec.name), "': ");
  const auto stored = static_cast<DType>(spec.dtype);
  const bool rounds = stored == DType::kFloat32 && IsHalf(dtype);
  const int64_t size = header.published_rows.count() * spec.num_col;
  if ((dtype != stored && !rounds) || first < 0 || count < 0 || first > size - count) {
    return Status(Code::kValue, StrCat(where,
                                       "expected elements of the table, as they are stored "
                                       "or as 16-bit numbers"));
  }
  const int buffer = BufferWith(publication, control_, header);
  if (buffer < 0) return Status::Outdated();
  MV_ASSIGN_OR_RETURN(const char* const parameters,
                      PublishedParameters(header, view->segment.data(), buffer));
  const char* const now = parameters + first * SizeOf(stored);
  const int64_t bytes = SizeOf(dtype);
  std::vector<uint16_t> rounded(rounds ? kChangesBlock : 0);
  int64_t found = 0;
  for (int64_t done = 0; done < count; done += kChangesBlock) {
    const int64_t block = std::min(kChangesBlock, count - done);
    const void* bits = now + done * SizeOf(stored);
    if (rounds) {
      half::RoundToNearest(dtype, static_cast<const float*>(bits), block, rounded.data());
      bits = rounded.data();
    }
    char* const target = static_cast<char*>(before) + done * bytes;
    if (counts == nullptr) {
      CopyBytes(target, bits, static_cast<size_t>(block * bytes));
      continue;
    }
    MV_ASSIGN_OR_RETURN(const int64_t changed,
                        FindChanges(bits, target, bytes, block, counts + done / kChangesBlock,
                                    places + found, static_cast<char*>(values) + found * bytes));
    found += changed;
  }
  if (BufferWith(publication, control_, header) != buffer) return Status::Outdated();
  return found;
}

Result<std::shared_ptr<Segment>> JobReader::Memory(int64_t table, uint64_t publication,
                                                   const void** values) {
  const std::shared_ptr<TableView> view = Find(table);
  if (view == nullptr) return NotThere(table, publication);
  const int buffer = BufferWith(publication, control_, *view->header);
  if (buffer < 0) return Status::Outdated();
  Result<const char*> parameters = PublishedParameters(*view->header, view->segment.data(), buffer);
  if (!parameters.ok()) {
    return parameters.status().In(StrCat("table '", TextOf(view->header->spec.name), "'"));
  }
  *values = parameters.value();
  return std::shared_ptr<Segment>(view, &view->segment);
}

Status JobReader::Wait(uint64_t publication, uint64_t* published, int64_t* step,
                       const WaitLimit& limit) {
  for (;;) {
    {
      // The tables of a session that ends while this call waits could not be found afterwards.
      const std::lock_guard<std::mutex> guard(mutex_);
      FindTables();
    }
    const uint32_t seen = control_->publications.load(std::memory_order_acquire);
    *published = control_->published.load(std::memory_order_acquire);
    *step = control_->steps[*published % 2].load();
    // The step is that of the publication unless a later one is complete.
    if (control_->published.load(std::memory_order_acquire) != *published) continue;
    if (*published >= publication) return Status::Ok();
    MV_RETURN_IF_NOT_OK(CheckRunning());
    if (is_closing_.load(std::memory_order_relaxed)) {
      return Status(Code::kState, "another thread has closed the reader");
    }
    const Instant now = Clock::now();
    if (now >= limit.deadline) {
      return Status(Code::kTimeout,
                    StrCat("waited for version ", publication, ", the last one is ", *published));
    }
    MV_RETURN_IF_NOT_OK(limit.Check(now));
    (void)SleepOnWord(&control_->publications, seen, limit.NextWake(now));
  }
}

}  // namespace multiverso
