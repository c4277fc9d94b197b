#include "calls/table_creation.h"

#include <cstddef>
#include <utility>

#include "base/backoff.h"
#include "base/failpoint.h"
#include "base/text.h"

namespace multiverso {
namespace {

// The message of the first exchange.
struct TableProposal {
  TableSpec spec;
  // The result of spec.Check(). A rank with an invalid spec still takes part, so that no other rank
  // waits for that rank in vain.
  int32_t code = 0;
  int32_t has_init_value = 0;
  SyncPointArrival arrival;
};

static_assert(sizeof(TableProposal) <= ExchangeSlot::kMaxBytes);

// The message of the second exchange from the ranks that made segments.
struct MadeSegment {
  SegmentLocator locator;
  uint64_t last_session = 0;  // TableFile::last_session
  uint64_t seed = 0;          // of the initializer of a table on a disk
};
static_assert(sizeof(MadeSegment) <= ExchangeSlot::kMaxBytes);

}  // namespace

TableCreation::TableCreation(const TableSpec& spec, int64_t id, const void* init_value,
                             const TableContext& context, std::string folder)
    : spec_(spec), id_(id), init_value_(init_value), context_(context), folder_(std::move(folder)) {
  // Random tables without a given seed differ, and a table is the same in every run.
  constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
  if (spec_.initializer.seed == InitializerSpec::kSeedOfTable) {
    any_seed_ = true;
    spec_.initializer.seed = kGoldenRatio * static_cast<uint64_t>(id + 1) >> 1;
  }
  if (!spec_.initializer.is_random()) spec_.initializer.seed = 0;
}

Status TableCreation::Run(SyncPointCheck sync_point, const WaitLimit& limit) {
  Group* const world = context_.rank->world();
  SendSpec(sync_point.mine());
  MV_RETURN_IF_NOT_OK(world->Wait(limit));
  MV_RETURN_IF_NOT_OK(sync_point.Check(*world, offsetof(TableProposal, arrival), limit));
  MV_RETURN_IF_NOT_OK(CompareSpecs());
  MV_RETURN_IF_NOT_OK(MakeSegments(limit));
  Status status = MapSegments(limit);
  if (status.ok()) MakeTable();
  if (status.ok() && master_has_init_value_ && last_session_ == 0) status = Fill(limit);
  if (!status.ok()) {
    Forget();
    return status;
  }
  // Readers look for the table from now on. Every rank tells them, since any of them may die now.
  std::atomic<uint32_t>& created = context_.rank->memory()->control()->tables_created;
  uint32_t before = created.load();
  while (before <= static_cast<uint32_t>(id_) &&
         !created.compare_exchange_weak(before, static_cast<uint32_t>(id_) + 1)) {
  }
  return Status::Ok();
}

Status TableCreation::Attach(Segment segment) {
  MV_RETURN_IF_NOT_OK(CheckSpec());
  const auto* const header =
      reinterpret_cast<const TableHeader*>(segment.data() + ShardStorage::kHeaderRoomOffset);
  if (!(header->spec == spec_)) {
    return Status(Code::kMismatch,
                  StrCat("the ranks did not create the same table: the session has ",
                         header->spec.Describe(), ", rank ", context_.members->rank(),
                         ", which joined later, asked for ", spec_.Describe()));
  }
  MV_ASSIGN_OR_RETURN(std::shared_ptr<TableShard> here,
                      TableShard::Open(spec_, id_, std::move(segment), context_.rank, context_.mode,
                                       /*is_new=*/false));
  table_ = std::make_shared<Table>(std::move(here), context_);
  return Status::Ok();
}

Status TableCreation::CheckSpec() const {
  MV_RETURN_IF_NOT_OK(spec_.Check());
  return CheckSupported(spec_.features() | context_.features());
}

Status TableCreation::Fill(const WaitLimit& limit) {
  Status stored;
  if (context_.members->rank() == master_) {
    stored = table_->without_mode()->Run(Request::Store(init_value_), limit);
    (void)MV_FAILPOINT("table.filled");
  }
  return context_.rank->world()->Agree(CollectiveKind::kFillTable, stored, {master_},
                                       Before("stored the initial value"), limit);
}

void TableCreation::SendSpec(const SyncPointArrival& arrival) {
  TableProposal proposal;
  proposal.spec = spec_;
  failure_ = CheckSpec();
  proposal.code = static_cast<int32_t>(failure_.code());
  proposal.has_init_value = init_value_ != nullptr ? 1 : 0;
  proposal.arrival = arrival;
  context_.rank->world()->BeginAllgather(CollectiveKind::kCreateTable, &proposal, sizeof(proposal));
}

Status TableCreation::CompareSpecs() {
  const Membership& members = *context_.members;
  Group* const world = context_.rank->world();
  // The error names the first pair that differs, in rank order, so that all ranks report the same.
  const std::vector<int> participants = world->participants();
  master_ = context_.rank->peers()->MasterOf(participants);
  const auto first = world->payload(participants.front()).Read<TableProposal>();
  std::vector<bool> has_maker(static_cast<size_t>(members.num_nodes()), false);
  for (const int rank : participants) {
    const auto other = world->payload(rank).Read<TableProposal>();
    if (maker_ < 0 && members.is_local(rank)) maker_ = rank;
    const auto node = static_cast<size_t>(members.node_of(rank));
    if (!has_maker[node]) makers_.push_back(rank);
    has_maker[node] = true;
    if (rank == master_) master_has_init_value_ = other.has_init_value != 0;
    if (!failure_.ok()) return failure_.In(StrCat("rank ", members.rank()));
    if (other.code == first.code && other.spec == first.spec) continue;
    return world->Mismatch(StrCat("the ranks did not create the same table: rank ",
                                  participants.front(), " asked for ", first.spec.Describe(),
                                  first.code != 0 ? " (invalid)" : "", ", rank ", rank, " for ",
                                  other.spec.Describe(), other.code != 0 ? " (invalid)" : ""));
  }
  return Status::Ok();
}

std::string TableCreation::Before(const char* task) const {
  return StrCat(" before it had ", task, " of ", spec_.Describe(), ": the table was not created");
}

Status TableCreation::MakeSegments(const WaitLimit& limit) {
  const Status made = is_maker() ? MakeSegmentHere() : Status::Ok();
  MadeSegment mine;
  if (is_maker() && made.ok()) mine.locator = segment_.locator();
  if (file_ != nullptr) {
    mine.last_session = file_->last_session();
    mine.seed = file_->seed();
  }
  // Messages about files name them, and may be long.
  const std::string about =
      spec_.is_on_disk() ? StrCat("table '", spec_.name, "'") : spec_.Describe();
  Group* const world = context_.rank->world();
  MV_RETURN_IF_NOT_OK(world->Agree(CollectiveKind::kMapTable, made.In(about), makers_,
                                   Before("made the memory"), limit, &mine, sizeof(mine)));
  const auto first = world->payload(makers_.front()).Read<MadeSegment>();
  last_session_ = first.last_session;
  if (spec_.is_on_disk()) spec_.initializer.seed = first.seed;
  for (const int maker : makers_) {
    if (world->payload(maker).Read<MadeSegment>().last_session == last_session_) continue;
    return Status(Code::kMismatch,
                  StrCat("backing: ", folder_, " has rows of another session on node ",
                         context_.members->node_of(maker), " than on node ",
                         context_.members->node_of(makers_.front()),
                         ": remove the folder on all nodes, and load a checkpoint"));
  }
  return Status::Ok();
}

Status TableCreation::MakeSegmentHere() {
  RankContext* const rank = context_.rank;
  rank->memory()->RecordTable(id_, spec_.name, spec_.dtype, spec_.num_row, spec_.num_col,
                              spec_.keys.capacity);
  if (spec_.is_on_disk()) {
    MV_ASSIGN_OR_RETURN(
        file_, TableShard::OpenFile(folder_, spec_, any_seed_, *context_.members, context_.mode));
    segment_ = file_->TakeRows();
    return TableShard::PrepareFile(spec_, *context_.members, context_.mode, segment_, *file_);
  }
  MV_ASSIGN_OR_RETURN(const TableBytes bytes,
                      TableShard::BytesOf(spec_, id_, *context_.members, context_.mode));
  // A rank alone on its node does not share the memory, unless there may be readers. Private memory
  // is faster to map.
  const bool may_be_read = !context_.members->name().empty() && Segment::CanBeFound();
  const bool is_private = rank->members().num_ranks_here() == 1 && !may_be_read;
  const auto create = is_private ? Segment::CreatePrivate : Segment::CreateSharedTable;
  MV_ASSIGN_OR_RETURN(segment_, create(bytes.needed, bytes.spare, bytes.pages));
  if (spec_.numa == static_cast<int32_t>(NumaPolicy::kInterleave)) segment_.Interleave();
  (void)MV_FAILPOINT("table.made");
  return Status::Ok();
}

Status TableCreation::MapSegments(const WaitLimit& limit) {
  Group* const world = context_.rank->world();
  const Status mapped = MapSegmentHere();
  (void)MV_FAILPOINT("table.mapped");
  const Status all_mapped =
      world->Allgather(CollectiveKind::kMapTable, mapped.In(spec_.Describe()), limit);
  if (all_mapped.ok() || !world->IsCompleted()) return all_mapped;
  // A segment can be opened only while its maker lives, so a maker's death is the cause.
  MV_RETURN_IF_NOT_OK(world->CheckTookPart(makers_, Before("shared the memory")));
  return all_mapped;
}

Status TableCreation::MapSegmentHere() {
  RankContext* const rank = context_.rank;
  if (!is_maker()) {
    (void)MV_FAILPOINT("table.map");
    Result<Segment> mapped =
        Segment::OpenShared(rank->world()->payload(maker_).Read<MadeSegment>().locator);
    if (!mapped.ok()) return CauseOf(mapped.status());
    segment_ = std::move(mapped.value());
  } else if (file_ != nullptr) {
    MV_RETURN_IF_NOT_OK(file_->BeginUse(TableFile::NumberOf(context_.members->session())));
  }
  MV_ASSIGN_OR_RETURN(here_,
                      TableShard::Open(spec_, id_, std::move(segment_), rank, context_.mode));
  if (context_.service == nullptr) return Status::Ok();
  // The services must keep the table before any rank of another node can send a request.
  is_served_ = true;
  here_->shard()->holders()->ranks_here.fetch_add(1);
  context_.service->Keep(here_);
  context_.rounds->Serve(id_, std::shared_ptr<NodeRounds>(here_, here_->node_rounds()));
  return Status::Ok();
}

Status TableCreation::CauseOf(const Status& failure) const {
  if (failure.code() != Code::kMemory) return failure;  // The maker lives, and forbids the access.
  // The kernel closes the files of a dying process one after the other: the segment, perhaps,
  // before the file that shows its presence.
  constexpr auto kLongestEnd = std::chrono::seconds(2);
  constexpr auto kLongestNap = std::chrono::milliseconds(5);
  const PeerStatus& peers = *context_.rank->peers();
  const Status lost = PollUntil(Clock::now() + kLongestEnd, Backoff(kLongestNap), [&] {
    return peers.IsLost(maker_) ? Status::Ok() : Status::Pending();
  });
  if (lost.pending()) return failure;
  return peers.LossOf(maker_, Before("shared the memory"));
}

void TableCreation::MakeTable() {
  if (spec_.is_on_disk()) here_->KeepFile(std::move(file_), folder_, last_session_ != 0);
  // All ranks have mapped the segment, so the segment no longer needs a name. Readers find its
  // descriptor, and ranks reserve room on a disk by it.
  if (context_.members->name().empty() && !spec_.is_on_disk()) {
    here_->segment()->Seal();
  } else {
    here_->segment()->Unlink();
  }
  table_ = std::make_shared<Table>(here_, context_);
}

void TableCreation::Forget() {
  table_.reset();
  if (file_ != nullptr) file_->CancelUse();
  if (!is_served_) return;
  context_.service->Forget(id_);
  context_.rounds->Forget(id_);
}

}  // namespace multiverso
