#include "table/table_creation.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/vote.h"

namespace multiverso {
namespace {

// The message of the first exchange.
struct Proposal {
  TableSpec spec;
  // The result of spec.Check(). A rank with an invalid spec still takes part, so that no other rank
  // waits for that rank in vain.
  int32_t code = 0;
  int32_t has_init_value = 0;
  SyncPointArrival arrival;
};

// The message of the second exchange, about making the segment, and of the third, about mapping it.
struct SegmentReport {
  Vote vote;
  SegmentLocator locator;  // in the second exchange, from the ranks that made segments
};

static_assert(sizeof(Proposal) <= ExchangeSlot::kMaxBytes);
static_assert(sizeof(SegmentReport) <= ExchangeSlot::kMaxBytes);

}  // namespace

TableCreation::TableCreation(const TableSpec& spec, int64_t id, const void* init_value,
                             const TableContext& context)
    : spec_(spec), id_(id), init_value_(init_value), context_(context) {
  // Random tables without a given seed differ, and a table is the same in every run.
  constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
  if (spec_.initializer.seed == InitializerSpec::kSeedOfTable) {
    spec_.initializer.seed = kGoldenRatio * static_cast<uint64_t>(id + 1) >> 1;
  }
  if (!spec_.initializer.is_random()) spec_.initializer.seed = 0;
}

Status TableCreation::Run(SyncPointCheck sync_point, const WaitLimit& limit) {
  Group* const world = context_.rank->world();
  SendSpec(sync_point.mine());
  MV_RETURN_IF_NOT_OK(world->Wait(limit));
  MV_RETURN_IF_NOT_OK(sync_point.Check(*world, offsetof(Proposal, arrival), limit));
  MV_RETURN_IF_NOT_OK(CompareSpecs());
  MakeSegmentAndSend();
  MV_RETURN_IF_NOT_OK(world->Wait(limit));
  MV_RETURN_IF_NOT_OK(MapAndReport());
  MV_RETURN_IF_NOT_OK(world->Wait(limit));
  MV_RETURN_IF_NOT_OK(ConfirmAllMapped());
  if (master_has_init_value_) MV_RETURN_IF_NOT_OK(Fill(limit));
  // Readers look for the table from now on.
  if (is_maker()) context_.rank->memory()->control()->tables_created.fetch_add(1);
  return Status::Ok();
}

Status TableCreation::Attach(Segment segment) {
  MV_RETURN_IF_NOT_OK(CheckSpec());
  const auto* const header =
      reinterpret_cast<const TableHeader*>(segment.data() + ShardStorage::kLabelOffset);
  if (!(header->spec == spec_)) {
    return Status(Code::kMismatch,
                  StrCat("the ranks did not create the same table: the session has ",
                         header->spec.Describe(), ", rank ", context_.members->rank(),
                         ", which joined later, asked for ", spec_.Describe()));
  }
  Result<std::shared_ptr<TableShard>> here = TableShard::Attach(
      spec_, id_, std::move(segment), context_.rank, context_.mode, /*is_new=*/false);
  MV_RETURN_IF_NOT_OK(here.status());
  table_ = std::make_shared<Table>(std::move(here.value()), context_);
  return Status::Ok();
}

Status TableCreation::CheckSpec() const {
  MV_RETURN_IF_NOT_OK(spec_.Check());
  const bool depends_on_timing = spec_.keys.may_remove() || spec_.keys.admit > 1;
  if (depends_on_timing && context_.mode.mode == Mode::kSync) {
    return Status(Code::kValue,
                  "evict, admit, ttl: expected none in sync mode, because they depend on the "
                  "order of the workers' calls");
  }
  const bool has_slots_of_workers =
      spec_.updater_kind() == UpdaterKind::kDcasgd || spec_.updater_kind() == UpdaterKind::kDcasgda;
  if (has_slots_of_workers && context_.members->is_elastic()) {
    return Status(Code::kValue, StrCat("updater: expected one without state for each worker in an "
                                       "elastic session, received ",
                                       NameOf(spec_.updater_kind())));
  }
  return Status::Ok();
}

Status TableCreation::Fill(const WaitLimit& limit) {
  if (context_.members->rank() == master_) {
    MV_RETURN_IF_NOT_OK(table_->RunWithoutMode(Request::Store(init_value_), limit));
  }
  Group* const world = context_.rank->world();
  world->BeginAllgather(CollectiveKind::kFillTable);
  MV_RETURN_IF_NOT_OK(world->Wait(limit));
  return CheckParticipated(master_, "stored the initial value");
}

void TableCreation::SendSpec(const SyncPointArrival& arrival) {
  Proposal proposal;
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
  const auto first = world->payload(participants.front()).Read<Proposal>();
  for (const int rank : participants) {
    const auto other = world->payload(rank).Read<Proposal>();
    if (maker_ < 0 && members.is_local(rank)) maker_ = rank;
    const int node = members.node_of(rank);
    const auto is_here = [&](int maker) { return members.node_of(maker) == node; };
    if (std::none_of(makers_.begin(), makers_.end(), is_here)) makers_.push_back(rank);
    if (rank == master_) master_has_init_value_ = other.has_init_value != 0;
    if (!failure_.ok()) return failure_.In(StrCat("rank ", members.rank()));
    if (other.code == first.code && other.spec == first.spec) continue;
    return Status(
        Code::kMismatch,
        StrCat("the ranks did not create the same table: rank ", participants.front(),
               " asked for ", first.spec.Describe(), first.code != 0 ? " (invalid)" : "", ", rank ",
               rank, " for ", other.spec.Describe(), other.code != 0 ? " (invalid)" : ""));
  }
  return Status::Ok();
}

Status TableCreation::CheckParticipated(int rank, const char* task) const {
  const std::vector<int> ranks = context_.rank->world()->participants();
  if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return Status::Ok();
  return context_.rank->peers()->About(
      rank, Status(Code::kPeerLost,
                   StrCat(context_.members->NameRank(rank), " ",
                          context_.rank->peers()->ExitReason(rank), " before it had ", task, " of ",
                          spec_.Describe(), ": the table was not created")));
}

void TableCreation::MakeSegmentAndSend() {
  RankContext* const rank_context = context_.rank;
  Group* const world = rank_context->world();
  SegmentReport message;
  if (is_maker()) {
    const Result<TableBytes> bytes = TableShard::BytesOf(spec_, *context_.members, context_.mode);
    if (!bytes.ok()) {
      failure_ = bytes.status();
    } else {
      // A rank alone on its node does not share the memory, unless there may be readers. Private
      // memory is faster to map.
      const bool is_private =
          rank_context->members().num_ranks_here() == 1 && context_.members->name().empty();
      const auto create = is_private ? Segment::CreatePrivate : Segment::CreateShared;
      Result<Segment> made = create(bytes.value().needed, bytes.value().spare, bytes.value().pages);
      failure_ = made.status();
      if (made.ok()) segment_ = std::move(made.value());
      if (made.ok() && spec_.numa == static_cast<int32_t>(NumaPolicy::kInterleave)) {
        segment_.Interleave();
      }
    }
    message.vote = Vote::Of(failure_);
    rank_context->memory()->RecordTable(id_, spec_.name, spec_.dtype, spec_.num_row, spec_.num_col,
                                        spec_.keys.capacity);
    if (failure_.ok()) message.locator = segment_.locator();
  }
  world->BeginAllgather(CollectiveKind::kMapTable, &message, sizeof(message));
}

Status TableCreation::MapAndReport() {
  RankContext* const rank_context = context_.rank;
  Group* const world = rank_context->world();
  for (const int maker : makers_) MV_RETURN_IF_NOT_OK(CheckParticipated(maker, "made the memory"));
  MV_RETURN_IF_NOT_OK(FirstFailure());
  if (!is_maker()) {
    Result<Segment> mapped =
        Segment::OpenShared(world->payload(maker_).Read<SegmentReport>().locator);
    failure_ = mapped.status();
    // The segment can be opened only while its maker lives, so the maker's death is the cause.
    const std::string exit_reason = failure_.ok() ? "" : rank_context->peers()->ExitReason(maker_);
    if (!exit_reason.empty()) {
      failure_ = rank_context->peers()->About(
          maker_,
          Status(Code::kPeerLost, StrCat(context_.members->NameRank(maker_), " ", exit_reason,
                                         " before all had mapped the memory that it made")));
    }
    if (mapped.ok()) segment_ = std::move(mapped.value());
  }
  if (failure_.ok()) {
    Result<std::shared_ptr<TableShard>> here =
        TableShard::Attach(spec_, id_, std::move(segment_), rank_context, context_.mode);
    failure_ = here.status();
    if (here.ok()) here_ = std::move(here.value());
  }
  if (failure_.ok() && context_.service != nullptr) {
    // The services must keep the table before any rank of another node can send a request.
    here_->shard()->holders()->ranks_here.fetch_add(1);
    context_.service->Keep(here_);
    context_.rounds->Serve(id_, std::shared_ptr<NodeRounds>(here_, here_->node_rounds()));
  }
  const SegmentReport message{Vote::Of(failure_), SegmentLocator()};
  world->BeginAllgather(CollectiveKind::kMapTable, &message, sizeof(message));
  return Status::Ok();
}

Status TableCreation::FirstFailure() const {
  const Group& world = *context_.rank->world();
  for (const int rank : world.participants()) {
    const Vote vote = world.payload(rank).Read<SegmentReport>().vote;
    MV_RETURN_IF_NOT_OK(vote.ToStatus(StrCat("rank ", rank, ", ", spec_.Describe())));
  }
  return Status::Ok();
}

Status TableCreation::ConfirmAllMapped() {
  const Status failure = FirstFailure();
  if (!failure.ok()) {
    if (context_.service != nullptr) {
      context_.service->Forget(id_);
      context_.rounds->Forget(id_);
    }
    return failure;
  }
  // All ranks have mapped the segment, so the segment no longer needs a name. Readers find its
  // descriptor.
  if (context_.members->name().empty()) {
    here_->segment()->Seal();
  } else {
    here_->segment()->Unlink();
  }
  table_ = std::make_shared<Table>(here_, context_);
  return Status::Ok();
}

}  // namespace multiverso
