// The part of the C API that is about tables.
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "base/text.h"
#include "c_api/call_recording.h"
#include "c_api/guard.h"
#include "c_api/pending.h"
#include "c_api/registry.h"
#include "multiverso/c_api.h"
#include "table/collective_get.h"

namespace multiverso::c_api {
namespace {

static_assert(MV_TABLE_ARRAY == static_cast<int32_t>(TableKind::kArray));
static_assert(MV_TABLE_MATRIX == static_cast<int32_t>(TableKind::kMatrix));
static_assert(MV_FLOAT32 == static_cast<int32_t>(DType::kFloat32));
static_assert(MV_FLOAT64 == static_cast<int32_t>(DType::kFloat64));
static_assert(MV_INT32 == static_cast<int32_t>(DType::kInt32));
static_assert(MV_INT64 == static_cast<int32_t>(DType::kInt64));
static_assert(MV_UPDATER_ADD == static_cast<int32_t>(UpdaterKind::kAdd));
static_assert(MV_UPDATER_SGD == static_cast<int32_t>(UpdaterKind::kSgd));
static_assert(MV_UPDATER_MOMENTUM == static_cast<int32_t>(UpdaterKind::kMomentum));
static_assert(MV_UPDATER_NESTEROV == static_cast<int32_t>(UpdaterKind::kNesterov));
static_assert(MV_UPDATER_ADAGRAD == static_cast<int32_t>(UpdaterKind::kAdagrad));
static_assert(MV_UPDATER_RMSPROP == static_cast<int32_t>(UpdaterKind::kRmsprop));
static_assert(MV_UPDATER_ADADELTA == static_cast<int32_t>(UpdaterKind::kAdadelta));
static_assert(MV_UPDATER_ADAM == static_cast<int32_t>(UpdaterKind::kAdam));
static_assert(MV_UPDATER_EASGD == static_cast<int32_t>(UpdaterKind::kEasgd));
static_assert(MV_UPDATER_DCASGD == static_cast<int32_t>(UpdaterKind::kDcasgd));
static_assert(MV_HYPER_LEARNING_RATE == kLearningRate);
static_assert(MV_HYPER_MOMENTUM == kMomentum);
static_assert(MV_HYPER_RHO == kRho);
static_assert(MV_HYPER_EPSILON == kEpsilon);
static_assert(MV_HYPER_BETA_1 == kBeta1);
static_assert(MV_HYPER_BETA_2 == kBeta2);
static_assert(MV_HYPER_INITIAL_ACCUMULATOR_VALUE == kInitialAccumulatorValue);
static_assert(MV_HYPER_ELASTIC_FORCE == kElasticForce);
static_assert(MV_HYPER_VARIANCE_CONTROL == kVarianceControl);
static_assert(MV_HYPER_COUNT == kHyperCount);

// A table call that has to wait: for a lock that is held for long, or for other workers.
class TableCall final : public Operation {
 public:
  using Body = std::function<Status(Progress*, const WaitLimit&)>;

  TableCall(const Table* table, Body body, Progress progress, Instant deadline)
      : Operation(deadline), table_(table), body_(std::move(body)), progress_(progress) {}

  Status Step(const WaitLimit& limit) override { return body_(&progress_, limit); }
  void Cancel(const std::string& reason) override {
    // The round that this call is part of cannot be completed without it.
    if (table_->HasRounds()) table_->group()->state()->Abort(Status(Code::kAborted, reason));
  }

 private:
  const Table* table_;
  Body body_;
  Progress progress_;
};

// A table in use for a call that one thread makes at a time. The turn ends before the use does.
struct ExclusiveUse {
  TableUse use;
  CallGuard guard;
};

// Makes a checked call on a table: at once if no lock is held for long, which is the usual case
// and costs no clock and no allocation, otherwise as an operation that waits.
template <class Body>
Status Make(TableUse use, const char* name, FlightRecorder::Entry* record, Body body) {
  CallGuard guard(use->table->HasRounds() ? &use->in_round_call : nullptr);
  const Status guard_status = guard.Check("table");
  if (!guard_status.ok()) return Ended(record, guard_status);
  Progress progress;
  const WaitLimit no_wait{Instant::max(), Instant::min()};
  const Status status = body(&progress, no_wait);
  if (!status.pending()) return Ended(record, status);
  SessionEntry* const session = use->session;
  const Table* const table = use->table;
  auto call = std::make_unique<TableCall>(table, std::move(body), progress,
                                          session->session->NextDeadline());
  auto held = std::make_shared<ExclusiveUse>(ExclusiveUse{std::move(use), std::move(guard)});
  return Drive(Call{std::move(call), session->slice,
                    [held, table, name](const Status& result) {
                      return result.ok() ? result : result.In(table->Where(name));
                    },
                    record});
}

// Makes a checked call on a table whose rows lie on several nodes, and keeps `merged` until its
// end.
Status MakeSpanning(TableUse use, const char* name, FlightRecorder::Entry* record,
                    const TableRequest& request,
                    std::shared_ptr<const MergedRows> merged = nullptr) {
  SessionEntry* const session = use->session;
  Table* const table = use->table;
  const bool in_round = table->HasRounds() && request.kind != RequestKind::kSetHyper;
  CallGuard guard(in_round ? &use->in_round_call : nullptr);
  const Status guard_status = guard.Check("table");
  if (!guard_status.ok()) return Ended(record, guard_status);
  const Instant deadline = session->session->NextDeadline();
  auto call = in_round ? table->Start(request, deadline) : table->StartAtServers(request, deadline);
  auto held = std::make_shared<ExclusiveUse>(ExclusiveUse{std::move(use), std::move(guard)});
  return Drive(Call{std::move(call), session->slice,
                    [held, table, name, merged = std::move(merged)](const Status& result) {
                      return result.ok() ? result : result.In(table->Where(name));
                    },
                    record});
}

TableRequest Request(RequestKind kind, const void* delta, void* out) {
  TableRequest request;
  request.kind = kind;
  request.delta = delta;
  request.out = out;
  return request;
}

TableRequest RowRequest(RequestKind kind, const int64_t* row_ids, int64_t num_ids,
                        const void* delta, void* out) {
  TableRequest request = Request(kind, delta, out);
  request.row_ids = row_ids;
  request.num_ids = num_ids;
  return request;
}

Status MakeCollectiveGet(TableUse use, const int64_t* row_ids, int64_t num_ids, void* out) {
  SessionEntry* const session = use->session;
  CallGuard guard(&session->in_collective_call);
  MV_RETURN_IF_NOT_OK(guard.Check("session"));
  Table* const table = use->table;
  auto get = std::make_unique<CollectiveGet>(table, row_ids, num_ids, out,
                                             session->session->NextDeadline());
  auto held = std::make_shared<ExclusiveUse>(ExclusiveUse{std::move(use), std::move(guard)});
  const int64_t count =
      row_ids == nullptr ? table->spec().count() : num_ids * table->spec().num_col;
  FlightRecorder::Entry* const record =
      RecordCall(*table, CallKind::kCollectiveGet, count, true, false);
  return Drive(Call{std::move(get), session->slice,
                    [held, table](const Status& result) {
                      return result.ok() ? result : result.In(table->Where("get"));
                    },
                    record});
}

Status CheckFlags(int32_t flags) {
  if ((flags & ~MV_COLLECTIVE) == 0) return Status::Ok();
  return Status(Code::kValue, StrCat("flags: expected 0 or MV_COLLECTIVE, received ", flags));
}

Result<TableSpec> SpecOf(const MV_TableOptions* options) {
  if (options == nullptr || options->struct_size != sizeof(MV_TableOptions)) {
    return Status(Code::kValue,
                  StrCat("MV_TableOptions.struct_size: expected ", sizeof(MV_TableOptions)));
  }
  TableSpec spec;
  spec.kind = options->kind;
  spec.dtype = options->dtype;
  spec.updater = options->updater;
  spec.num_row = options->num_row;
  spec.num_col = options->num_col;
  std::memcpy(spec.hyper, options->hyper, sizeof(spec.hyper));
  KeepOwn(spec.updater_kind(), spec.hyper);
  if (options->name != nullptr) CopyText(spec.name, options->name);
  return spec;
}

}  // namespace
}  // namespace multiverso::c_api

using namespace multiverso;         // NOLINT: this file is the C++ side of extern "C" functions
using namespace multiverso::c_api;  // NOLINT

int32_t MV_TableOptionsInit(MV_TableOptions* options) {
  return Guard([&] {
    if (options == nullptr) return Status(Code::kValue, "MV_TableOptionsInit: received null");
    *options = MV_TableOptions{};
    options->struct_size = sizeof(MV_TableOptions);
    options->num_col = 1;
    options->hyper[MV_HYPER_LEARNING_RATE] = 0.01;
    return Status::Ok();
  });
}

int32_t MV_TableOptionsSetUpdater(MV_TableOptions* options, int32_t updater) {
  return Guard([&]() -> Status {
    if (options == nullptr || options->struct_size != sizeof(MV_TableOptions)) {
      return Status(Code::kValue,
                    StrCat("MV_TableOptions.struct_size: expected ", sizeof(MV_TableOptions)));
    }
    const auto kind = static_cast<UpdaterKind>(updater);
    MV_RETURN_IF_NOT_OK(MakeUpdater(kind, DType::kFloat32).status());
    options->updater = updater;
    SetDefaults(kind, options->hyper);
    return Status::Ok();
  });
}

int32_t MV_TableCreate(MV_Session session, const MV_TableOptions* options, MV_Table* table) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    if (table == nullptr) return Status(Code::kValue, "MV_TableCreate: received null");
    const Result<TableSpec> spec = SpecOf(options);
    if (!spec.ok()) return spec.status();
    auto together = UsingTogether(session);
    if (!together.ok()) return together.status();
    SessionEntry* const entry = together.value()->use.get();
    auto creation = entry->session->StartTable(spec.value(), options->init_value);
    TableCreation* const created = creation.get();
    return Drive(Call{std::move(creation), entry->slice,
                      [held = together.value(), entry, created, table](const Status& status) {
                        MV_RETURN_IF_NOT_OK(status);
                        Result<MV_Table> handle = Publish(entry, created->TakeTable());
                        if (handle.ok()) *table = handle.value();
                        return handle.status();
                      },
                      RecordCall(*entry, CallKind::kCreateTable)});
  });
}

int32_t MV_TableDescribe(MV_Table table, MV_TableDescription* description) {
  return Guard([&]() -> Status {
    if (description == nullptr || description->struct_size != sizeof(MV_TableDescription)) {
      return Status(Code::kValue, "MV_TableDescription.struct_size: expected its size");
    }
    const TableUse use = Using(table);
    if (!use) return WhyStale("table");
    const TableSpec& spec = use->table->spec();
    description->kind = spec.kind;
    description->dtype = spec.dtype;
    description->num_row = spec.num_row;
    description->num_col = spec.num_col;
    description->updater = spec.updater;
    description->reserved = 0;
    for (int i = 0; i < kHyperCount; ++i) description->hyper[i] = use->table->GetHyper(i);
    description->id = use->table->id();
    description->bytes = spec.bytes();
    return Status::Ok();
  });
}

int32_t MV_TableFree(MV_Table table) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    return Withdraw(table);
  });
}

int32_t MV_TableGet(MV_Table table, void* out, int64_t count, int32_t flags) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    TableUse use = Using(table);
    if (!use) return WhyStale("table");
    Table* const target = use->table;
    MV_RETURN_IF_NOT_OK(target->CheckWhole("get", out, count));
    MV_RETURN_IF_NOT_OK(CheckFlags(flags));
    if (flags != 0 && !target->EveryGetIsCollective()) {
      return MakeCollectiveGet(std::move(use), nullptr, 0, out);
    }
    FlightRecorder::Entry* const record = RecordCall(*target, CallKind::kGet, count, true, false);
    if (target->spans_nodes()) {
      return MakeSpanning(std::move(use), "get", record, Request(RequestKind::kGet, nullptr, out));
    }
    return Make(std::move(use), "get", record, [=](Progress* progress, const WaitLimit& limit) {
      return target->Get(out, progress, limit);
    });
  });
}

int32_t MV_TableAdd(MV_Table table, const void* delta, int64_t count) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    TableUse use = Using(table);
    if (!use) return WhyStale("table");
    Table* const target = use->table;
    MV_RETURN_IF_NOT_OK(target->CheckWhole("add", delta, count));
    FlightRecorder::Entry* const record = RecordCall(*target, CallKind::kAdd, count, false, true);
    if (target->spans_nodes()) {
      return MakeSpanning(std::move(use), "add", record,
                          Request(RequestKind::kAdd, delta, nullptr));
    }
    return Make(std::move(use), "add", record, [=](Progress* progress, const WaitLimit& limit) {
      return target->Add(delta, progress, limit);
    });
  });
}

int32_t MV_TableAddGet(MV_Table table, const void* delta, void* out, int64_t count) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    TableUse use = Using(table);
    if (!use) return WhyStale("table");
    Table* const target = use->table;
    MV_RETURN_IF_NOT_OK(target->CheckWhole("add_get", delta, count));
    MV_RETURN_IF_NOT_OK(target->CheckWhole("add_get", out, count));
    FlightRecorder::Entry* const record = RecordCall(*target, CallKind::kAddGet, count, true, true);
    if (target->spans_nodes()) {
      return MakeSpanning(std::move(use), "add_get", record,
                          Request(RequestKind::kAddGet, delta, out));
    }
    return Make(std::move(use), "add_get", record, [=](Progress* progress, const WaitLimit& limit) {
      return target->AddGet(delta, out, progress, limit);
    });
  });
}

int32_t MV_TableGetRows(MV_Table table, const int64_t* row_ids, int64_t num_ids, void* out,
                        int64_t count, int32_t flags) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    TableUse use = Using(table);
    if (!use) return WhyStale("table");
    Table* const target = use->table;
    MV_RETURN_IF_NOT_OK(target->CheckRows("get", row_ids, num_ids, out, count));
    MV_RETURN_IF_NOT_OK(CheckFlags(flags));
    if (flags != 0 && !target->EveryGetIsCollective()) {
      // No ids at all is a list of none, not the whole table.
      static constexpr int64_t kNoRows[1] = {0};
      return MakeCollectiveGet(std::move(use), num_ids == 0 ? kNoRows : row_ids, num_ids, out);
    }
    FlightRecorder::Entry* const record =
        RecordCall(*target, CallKind::kGetRows, count, true, false);
    if (target->spans_nodes()) {
      return MakeSpanning(std::move(use), "get", record,
                          RowRequest(RequestKind::kGetRows, row_ids, num_ids, nullptr, out));
    }
    return Make(std::move(use), "get", record, [=](Progress* progress, const WaitLimit& limit) {
      return target->GetRows(row_ids, num_ids, out, progress, limit);
    });
  });
}

int32_t MV_TableAddRows(MV_Table table, const int64_t* row_ids, int64_t num_ids, const void* delta,
                        int64_t count) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    TableUse use = Using(table);
    if (!use) return WhyStale("table");
    Table* const target = use->table;
    MV_RETURN_IF_NOT_OK(target->CheckRows("add", row_ids, num_ids, delta, count));
    auto merged = target->MergeDuplicates(RowDelta{row_ids, num_ids, delta});
    if (!merged.ok()) return merged.status();
    const std::shared_ptr<const MergedRows> held = merged.value();  // until the call has ended
    const RowDelta rows = held == nullptr ? RowDelta{row_ids, num_ids, delta} : held->delta();
    FlightRecorder::Entry* const record =
        RecordCall(*target, CallKind::kAddRows, count, false, true);
    if (target->spans_nodes()) {
      return MakeSpanning(
          std::move(use), "add", record,
          RowRequest(RequestKind::kAddRows, rows.ids, rows.count, rows.values, nullptr), held);
    }
    return Make(std::move(use), "add", record,
                [target, rows, held](Progress* progress, const WaitLimit& limit) {
                  return target->AddRows(rows.ids, rows.count, rows.values, progress, limit);
                });
  });
}

int32_t MV_TableCheckHyper(MV_Table table, int32_t hyper, double value) {
  return Guard([&]() -> Status {
    const TableUse use = Using(table);
    if (!use) return WhyStale("table");
    return CheckHyper(use->table->spec().updater_kind(), hyper, value);
  });
}

int32_t MV_TableSetHyper(MV_Table table, int32_t hyper, double value) {
  return Guard([&]() -> Status {
    MV_RETURN_IF_NOT_OK(CheckNothingPending());
    TableUse use = Using(table);
    if (!use) return WhyStale("table");
    MV_RETURN_IF_NOT_OK(use->table->SetHyper(hyper, value));
    if (!use->table->is_on_other_nodes()) return Status::Ok();
    const TableRequest request = use->table->HyperRequest(hyper, value);
    FlightRecorder::Entry* const record =
        RecordCall(*use->table, CallKind::kSetHyper, 0, false, false);
    return MakeSpanning(std::move(use), "set_hyper", record, request);
  });
}
