#include "table/table_creation.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/text.h"
#include "consistency/round_service.h"
#include "table/shard_service.h"

namespace multiverso {
namespace {

// What a rank brings to the first meeting.
struct Proposal {
  TableSpec spec;
  int32_t code = 0;  // of spec.Check(), so that a rank that is wrong does not keep the others
  int32_t has_init_value = 0;
  SyncPointArrival attendance;
};

// What a rank brings to the second and third.
struct Vote {
  int32_t code = 0;
  char text[256] = {};
  SegmentLocator locator;
};

static_assert(sizeof(Proposal) <= ExchangeSlot::kMaxBytes);
static_assert(sizeof(Vote) <= ExchangeSlot::kMaxBytes);

Vote OutcomeOf(const Status& status) {
  Vote outcome;
  outcome.code = static_cast<int32_t>(status.code());
  CopyText(outcome.text, status.text());
  return outcome;
}

}  // namespace

TableCreation::TableCreation(const TableSpec& spec, int64_t id, const void* init_value,
                             TableContext context, SyncPointCheck fence, Instant deadline)
    : Operation(deadline),
      spec_(spec),
      id_(id),
      init_value_(init_value),
      context_(context),
      fence_(std::move(fence)) {
  Proposal proposal;
  proposal.spec = spec_;
  failure_ = spec_.Check();
  proposal.code = static_cast<int32_t>(failure_.code());
  proposal.has_init_value = init_value != nullptr ? 1 : 0;
  proposal.attendance = fence_.mine();
  context_.group->world()->BeginAllgather(CollectiveKind::kCreateTable, &proposal,
                                          sizeof(proposal));
}

void TableCreation::Cancel(const std::string& reason) {
  if (storing_ != nullptr) storing_->Cancel(reason);
  context_.group->state()->Abort(Status(Code::kAborted, reason));
}

Status TableCreation::Step(const WaitLimit& limit) {
  Group* const meeting = context_.group->world();
  // Each phase is left by falling into the next; a pending wait comes back to where it was.
  switch (phase_) {
    case Phase::kCompare:
      MV_RETURN_IF_NOT_OK(meeting->Wait(limit));
      MV_RETURN_IF_NOT_OK(fence_.Check(*meeting, offsetof(Proposal, attendance), limit));
      MV_RETURN_IF_NOT_OK(CompareSpecs());
      ArriveWithSegment();
      phase_ = Phase::kMap;
      [[fallthrough]];
    case Phase::kMap:
      MV_RETURN_IF_NOT_OK(meeting->Wait(limit));
      MV_RETURN_IF_NOT_OK(MapAndArrive());
      phase_ = Phase::kConfirm;
      [[fallthrough]];
    case Phase::kConfirm:
      MV_RETURN_IF_NOT_OK(meeting->Wait(limit));
      MV_RETURN_IF_NOT_OK(ConfirmAllMapped());
      if (!master_fills_) return Status::Ok();
      phase_ = Phase::kStore;
      [[fallthrough]];
    case Phase::kStore:
      if (context_.members->rank() == master_) {
        MV_RETURN_IF_NOT_OK(Store(limit));
      }
      meeting->BeginAllgather(CollectiveKind::kFillTable);
      phase_ = Phase::kFilled;
      [[fallthrough]];
    case Phase::kFilled:
      MV_RETURN_IF_NOT_OK(meeting->Wait(limit));
      return CheckCame(master_, "stored the initial value");
  }
  return Status(Code::kInternal, "table creation in no phase");
}

Status TableCreation::CompareSpecs() {
  const Membership& members = *context_.members;
  Group* const meeting = context_.group->world();
  // The first pair that differs, in rank order, so that all ranks say the same.
  const std::vector<int> present = meeting->participants();
  master_ = context_.group->peers()->MasterOf(present);
  const auto first = meeting->payload(present.front()).Read<Proposal>();
  for (const int i : present) {
    const auto other = meeting->payload(i).Read<Proposal>();
    if (maker_ < 0 && context_.group->members().is_local(i)) maker_ = i;
    const auto is_beside = [&](int maker) { return members.node_of(maker) == members.node_of(i); };
    if (std::none_of(makers_.begin(), makers_.end(), is_beside)) makers_.push_back(i);
    if (i == master_) master_fills_ = other.has_init_value != 0;
    if (!failure_.ok()) return failure_.In(StrCat("rank ", members.rank()));
    if (other.code == first.code && other.spec == first.spec) continue;
    return Status(
        Code::kMismatch,
        StrCat("the ranks did not create the same table: rank ", present.front(), " asked for ",
               first.spec.Describe(), first.code != 0 ? " (invalid)" : "", ", rank ", i, " for ",
               other.spec.Describe(), other.code != 0 ? " (invalid)" : ""));
  }
  return Status::Ok();
}

Status TableCreation::CheckCame(int rank, const char* task) const {
  const std::vector<int> present = context_.group->world()->participants();
  if (std::find(present.begin(), present.end(), rank) != present.end()) return Status::Ok();
  return context_.group->peers()->About(
      rank,
      Status(Code::kPeerLost, StrCat(context_.members->NameRank(rank), " ",
                                     context_.group->peers()->ExitReason(rank), " before it had ",
                                     task, " of ", spec_.Describe(), ": nobody has the table")));
}

void TableCreation::ArriveWithSegment() {
  RankContext* const group = context_.group;
  Group* const meeting = group->world();
  Vote outcome;
  if (is_maker()) {
    const Result<TableBytes> bytes = Table::BytesOf(spec_, context_);
    if (!bytes.ok()) {
      failure_ = bytes.status();
    } else {
      // Alone on the node, memory of its own is faster to get and as good.
      const auto create =
          group->members().num_ranks_here() == 1 ? Segment::CreatePrivate : Segment::CreateShared;
      Result<Segment> made = create(bytes.value().shard, bytes.value().consistency);
      failure_ = made.status();
      if (made.ok()) segment_ = std::move(made.value());
    }
    outcome = OutcomeOf(failure_);
    group->memory()->RecordTable(id_, spec_.name, spec_.dtype, spec_.num_row, spec_.num_col);
    if (failure_.ok()) outcome.locator = segment_.locator();
  }
  meeting->BeginAllgather(CollectiveKind::kMapTable, &outcome, sizeof(outcome));
}

Status TableCreation::MapAndArrive() {
  RankContext* const group = context_.group;
  Group* const meeting = group->world();
  for (const int maker : makers_) MV_RETURN_IF_NOT_OK(CheckCame(maker, "made the memory"));
  for (const int i : meeting->participants()) {
    const auto made = meeting->payload(i).Read<Vote>();
    if (made.code == 0) continue;
    return Status(static_cast<Code>(made.code),
                  StrCat("rank ", i, ", ", spec_.Describe(), ": ", made.text));
  }
  if (!is_maker()) {
    Result<Segment> mapped = Segment::OpenShared(meeting->payload(maker_).Read<Vote>().locator);
    failure_ = mapped.status();
    // It is open only as long as its maker lives.
    const std::string gone = failure_.ok() ? "" : group->peers()->ExitReason(maker_);
    if (!gone.empty()) {
      failure_ = group->peers()->About(
          maker_,
          Status(Code::kPeerLost, StrCat(context_.members->NameRank(maker_), " ", gone,
                                         " before all had mapped the memory that it made")));
    }
    if (mapped.ok()) segment_ = std::move(mapped.value());
  }
  if (failure_.ok()) {
    Result<std::unique_ptr<Table>> table = Table::Attach(spec_, id_, std::move(segment_), context_);
    failure_ = table.status();
    if (table.ok()) table_ = std::move(table.value());
  }
  if (failure_.ok() && context_.service != nullptr) {
    // Before anybody can ask for it.
    table_->holders()->ranks.fetch_add(1);
    context_.service->Keep(table_);
    context_.rounds->Keep(id_, std::shared_ptr<NodeRounds>(table_, table_->node_rounds()));
  }
  const Vote outcome = OutcomeOf(failure_);
  meeting->BeginAllgather(CollectiveKind::kMapTable, &outcome, sizeof(outcome));
  return Status::Ok();
}

Status TableCreation::ConfirmAllMapped() {
  Group* const meeting = context_.group->world();
  for (const int i : meeting->participants()) {
    const auto mapped = meeting->payload(i).Read<Vote>();
    if (mapped.code == 0) continue;
    if (context_.service != nullptr) {
      context_.service->Forget(id_);
      context_.rounds->Forget(id_);
    }
    table_.reset();
    return Status(static_cast<Code>(mapped.code),
                  StrCat("rank ", i, ", ", spec_.Describe(), ": ", mapped.text));
  }
  // Everybody has it: from here on it needs neither name nor descriptor.
  table_->segment()->Seal();
  return Status::Ok();
}

Status TableCreation::Store(const WaitLimit& limit) {
  if (!table_->is_on_other_nodes()) return table_->Store(init_value_, &stored_, limit);
  if (storing_ == nullptr) {
    TableRequest request;
    request.kind = RequestKind::kStore;
    request.delta = init_value_;
    storing_ = table_->StartAtServers(request, deadline());
  }
  return storing_->Step(limit);
}

}  // namespace multiverso
