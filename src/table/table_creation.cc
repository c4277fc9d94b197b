#include "table/table_creation.h"

#include <cstddef>
#include <cstring>
#include <utility>

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
  Attendance attendance;
};

// What a rank brings to the second and third.
struct Outcome {
  int32_t code = 0;
  char text[256] = {};
  SegmentLocator locator;
};

static_assert(sizeof(Proposal) <= RankSlot::kMostBytes);
static_assert(sizeof(Outcome) <= RankSlot::kMostBytes);

template <class T>
T Read(const RankSlot::Deposit& deposit) {
  T value;
  std::memcpy(&value, deposit.data, sizeof(value));
  return value;
}

Outcome OutcomeOf(const Status& status) {
  Outcome outcome;
  outcome.code = static_cast<int32_t>(status.code());
  CopyText(outcome.text, status.text());
  return outcome;
}

}  // namespace

TableCreation::TableCreation(const TableSpec& spec, int64_t id, const void* init_value,
                             TableContext context, FenceCheck fence, Instant deadline)
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
  context_.group->everybody()->Arrive(CallKind::kCreateTable, &proposal, sizeof(proposal));
}

void TableCreation::Cancel(const std::string& reason) {
  if (storing_ != nullptr) storing_->Cancel(reason);
  context_.group->Abort(Status(Code::kAborted, reason));
}

Status TableCreation::Step(const WaitLimit& limit) {
  Circle* const meeting = context_.group->everybody();
  // Each phase is left by falling into the next; a pending wait comes back to where it was.
  switch (phase_) {
    case Phase::kCompare:
      MV_RETURN_IF_NOT_OK(meeting->Meet(limit));
      MV_RETURN_IF_NOT_OK(fence_.Check(*meeting, offsetof(Proposal, attendance), limit));
      MV_RETURN_IF_NOT_OK(CompareSpecs());
      ArriveWithSegment();
      phase_ = Phase::kMap;
      [[fallthrough]];
    case Phase::kMap:
      MV_RETURN_IF_NOT_OK(meeting->Meet(limit));
      MV_RETURN_IF_NOT_OK(MapAndArrive());
      phase_ = Phase::kConfirm;
      [[fallthrough]];
    case Phase::kConfirm:
      MV_RETURN_IF_NOT_OK(meeting->Meet(limit));
      MV_RETURN_IF_NOT_OK(ConfirmAllMapped());
      if (!master_fills_) return Status::Ok();
      phase_ = Phase::kStore;
      [[fallthrough]];
    case Phase::kStore:
      if (context_.members->rank() == context_.members->master_rank()) {
        MV_RETURN_IF_NOT_OK(Store(limit));
      }
      meeting->Arrive(CallKind::kFillTable);
      phase_ = Phase::kFilled;
      [[fallthrough]];
    case Phase::kFilled:
      return meeting->Meet(limit);
  }
  return Status(Code::kInternal, "table creation in no phase");
}

Status TableCreation::CompareSpecs() {
  const Membership& members = *context_.members;
  Circle* const meeting = context_.group->everybody();
  // The first pair that differs, in rank order, so that all ranks say the same.
  const auto first = Read<Proposal>(meeting->deposit(0));
  for (int i = 0; i < members.size(); ++i) {
    const auto other = Read<Proposal>(meeting->deposit(i));
    if (i == members.master_rank()) master_fills_ = other.has_init_value != 0;
    if (!failure_.ok()) return failure_.In(StrCat("rank ", members.rank()));
    if (other.code == first.code && other.spec == first.spec) continue;
    return Status(Code::kMismatch,
                  StrCat("the ranks did not create the same table: rank 0 asked for ",
                         first.spec.Describe(), first.code != 0 ? " (invalid)" : "", ", rank ", i,
                         " for ", other.spec.Describe(), other.code != 0 ? " (invalid)" : ""));
  }
  return Status::Ok();
}

void TableCreation::ArriveWithSegment() {
  NodeGroup* const group = context_.group;
  Circle* const meeting = group->everybody();
  Outcome outcome;
  if (group->local_rank() == 0) {
    const Result<TableBytes> bytes = Table::BytesOf(spec_, context_);
    if (!bytes.ok()) {
      failure_ = bytes.status();
    } else {
      // Alone on the node, memory of its own is faster to get and as good.
      const auto create = group->size() == 1 ? Segment::CreatePrivate : Segment::CreateShared;
      Result<Segment> made = create(bytes.value().shard, bytes.value().consistency);
      failure_ = made.status();
      if (made.ok()) segment_ = std::move(made.value());
    }
    outcome = OutcomeOf(failure_);
    if (failure_.ok()) outcome.locator = segment_.locator();
  }
  meeting->Arrive(CallKind::kMapTable, &outcome, sizeof(outcome));
}

Status TableCreation::MapAndArrive() {
  NodeGroup* const group = context_.group;
  Circle* const meeting = group->everybody();
  for (int i = 0; i < context_.members->size(); ++i) {
    const auto made = Read<Outcome>(meeting->deposit(i));
    if (made.code == 0) continue;
    return Status(static_cast<Code>(made.code),
                  StrCat("rank ", i, ", ", spec_.Describe(), ": ", made.text));
  }
  if (group->local_rank() != 0) {
    Result<Segment> mapped = Segment::OpenShared(Read<Outcome>(meeting->deposit(maker())).locator);
    failure_ = mapped.status();
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
  const Outcome outcome = OutcomeOf(failure_);
  meeting->Arrive(CallKind::kMapTable, &outcome, sizeof(outcome));
  return Status::Ok();
}

Status TableCreation::ConfirmAllMapped() {
  Circle* const meeting = context_.group->everybody();
  for (int i = 0; i < context_.members->size(); ++i) {
    const auto mapped = Read<Outcome>(meeting->deposit(i));
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
