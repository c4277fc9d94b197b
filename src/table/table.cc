#include "table/table.h"

#include <utility>

#include "base/checked.h"
#include "base/compiler.h"
#include "base/text.h"
#include "table/distributed_call.h"

namespace multiverso {
namespace {

bool HasBuffers(const Request& request) {
  return (request.delta != nullptr || !CarriesData(request.kind)) &&
         (request.out != nullptr || !ReturnsData(request.kind));
}

// Returns whether `delta` and `out`, of `bytes` bytes each, overlap without being the same.
bool Overlaps(const Request& request, int64_t bytes) {
  if (!IsAdd(request.kind) || !ReturnsData(request.kind)) return false;
  const int64_t distance =
      reinterpret_cast<intptr_t>(request.out) - reinterpret_cast<intptr_t>(request.delta);
  return distance != 0 && distance < bytes && distance > -bytes;
}

Status CheckRows(const Table& table, const Request& request, int64_t count) {
  const TableSpec& spec = table.spec();
  const int64_t num_ids = request.num_ids;
  const char* const call = NameOf(request.kind);
  if (num_ids < 0 || num_ids > INT64_MAX / spec.num_col || count != num_ids * spec.num_col) {
    return Status(Code::kValue, StrCat(table.Where(call), ": expected ", num_ids, " rows of ",
                                       spec.num_col, " elements, received ", count, " elements"));
  }
  if (!RowOrder::CanOrder(num_ids, spec.num_row)) {
    return Status(Code::kValue, StrCat(table.Where(call),
                                       ": expected fewer rows in one call, received ", num_ids));
  }
  if (num_ids > 0 && request.row_ids == nullptr) {
    return Status(Code::kValue, StrCat(table.Where(call), ": expected a buffer, received null"));
  }
  // As an unsigned number, a negative id is large. Without a branch, the compiler vectorizes the
  // loop.
  const auto rows = static_cast<uint64_t>(spec.num_row);
  const int64_t* const row_ids = request.row_ids;
  uint64_t has_invalid_id = 0;
  for (int64_t i = 0; i < num_ids; ++i) {
    has_invalid_id |= static_cast<uint64_t>(static_cast<uint64_t>(row_ids[i]) >= rows);
  }
  if (has_invalid_id == 0) return Status::Ok();
  int64_t position = 0;
  while (static_cast<uint64_t>(row_ids[position]) < rows) ++position;
  return Status(Code::kIndex, StrCat(table.Where(call), ": row_ids[", position, "]: expected 0 to ",
                                     spec.num_row - 1, ", received ", row_ids[position]));
}

// CheckSlowly and RunAcrossNodes are not inlined, to keep Check and Run short.
MV_NOINLINE Status CheckSlowly(const Table& table, const Request& request, int64_t count) {
  const TableSpec& spec = table.spec();
  if (request.kind == RequestKind::kSetHyper) {
    return CheckHyper(spec.updater_kind(), request.hyper, request.value);
  }
  const char* const call = NameOf(request.kind);
  if (!table.members().is_worker()) {
    return Status(Code::kState, StrCat(table.Where(call), ": this rank is a server and no worker"));
  }
  if (IsOfRows(request.kind)) {
    MV_RETURN_IF_NOT_OK(CheckRows(table, request, count));
  } else if (count != spec.count()) {
    return Status(Code::kValue, StrCat(table.Where(call), ": expected ", spec.count(),
                                       " elements, received ", count));
  }
  if (!HasBuffers(request) && count != 0) {
    return Status(Code::kValue, StrCat(table.Where(call), ": expected a buffer, received null"));
  }
  if (!Overlaps(request, spec.bytes())) return Status::Ok();
  return Status(Code::kValue, StrCat(table.Where(call),
                                     ": expected the same memory for delta and result, or "
                                     "separate memory, received memory that overlaps"));
}

MV_NOINLINE Status RunAcrossNodes(Table* table, const Request& request, Progress* progress,
                                  const WaitLimit& limit) {
  if (request.kind == RequestKind::kSetHyper) return table->RunWithoutMode(request, limit);
  MV_RETURN_IF_NOT_OK(table->consistency()->Enter(request.kind, progress, limit));
  MV_RETURN_IF_NOT_OK(table->RunWithoutMode(request, limit));
  // Leave tells other workers of the add, which they can read, since all servers have answered.
  table->consistency()->Leave(request.kind);
  return Status::Ok();
}

}  // namespace

std::string Table::Where(const char* call) const {
  return StrCat("rank ", members().rank(), ", table '", spec().name, "', ", call);
}

Table::Table(std::shared_ptr<TableShard> here, const TableContext& context)
    : here_(std::move(here)),
      context_(context),
      has_rounds_(here_->consistency()->HasRounds()),
      spans_nodes_(context.service != nullptr && context.mode.mode != Mode::kSync) {
  if (context.service == nullptr) return;
  if (spec().is_lazy()) {
    // Without this memory, every add asks about all of its rows.
    Result<Segment> known =
        Segment::CreatePrivate(0, DivideUp(spec().num_row, 8), PageSize::kSmall);
    if (known.ok()) known_ = std::move(known.value());
  }
  here_->consistency()->FetchWith(
      [shard = here_.get(), context](const Request& request, const WaitLimit& limit) {
        return DistributedCall(shard, context.service, context.rank, request).Run(limit);
      });
}

Status Table::Check(const Request& request, int64_t count) const {
  const bool is_whole = !IsOfRows(request.kind) && request.kind != RequestKind::kSetHyper;
  if (is_whole && count == spec().count() && HasBuffers(request) &&
      !Overlaps(request, spec().bytes()) && members().is_worker()) {
    return Status::Ok();
  }
  return CheckSlowly(*this, request, count);
}

Status Table::Run(const Request& request, Progress* progress, const WaitLimit& limit) {
  if (!spans_nodes_ && request.kind != RequestKind::kSetHyper) {
    const bool may_touch = spec().is_lazy() && context_.service != nullptr;
    if (may_touch && IsAdd(request.kind) && progress->phase == 0) {
      const bool may_wait = limit.slice_end > Clock::now();
      MV_RETURN_IF_NOT_OK(TouchEverywhere(request, may_wait, limit));
    }
    return consistency()->Run(request, progress, limit);
  }
  return RunAcrossNodes(this, request, progress, limit);
}

Status Table::TouchEverywhere(const Request& add, bool wait, const WaitLimit& limit) {
  if (!spec().is_lazy() || context_.service == nullptr || knows_all_.load()) return Status::Ok();
  Request touch = Request::Touch();
  std::vector<int64_t> unknown;
  auto* const known = reinterpret_cast<std::atomic<uint8_t>*>(known_.data());
  if (IsOfRows(add.kind)) {
    for (int64_t i = 0; i < add.num_ids; ++i) {
      const int64_t row = add.row_ids[i];
      if (known == nullptr || (known[row / 8].load() >> (row % 8) & 1) == 0) unknown.push_back(row);
    }
    if (unknown.empty()) return Status::Ok();
    touch = Request::TouchRows(unknown.data(), static_cast<int64_t>(unknown.size()));
  }
  if (!wait) return Status::Pending();
  MV_RETURN_IF_NOT_OK(DistributedCall(here(), context_.service, context_.rank, touch).Run(limit));
  if (!IsOfRows(add.kind)) knows_all_.store(true);
  if (known == nullptr) return Status::Ok();
  for (const int64_t row : unknown) known[row / 8].fetch_or(static_cast<uint8_t>(1U << (row % 8)));
  return Status::Ok();
}

Status Table::RunWithoutMode(const Request& request, const WaitLimit& limit) {
  Progress progress;
  if (context_.service == nullptr) return shard()->Run(request, &progress, limit);
  if (CarriesData(request.kind))
    MV_RETURN_IF_NOT_OK(TouchEverywhere(request, /*wait=*/true, limit));
  Request distributed = request;
  if (request.kind == RequestKind::kSetHyper) {
    MV_RETURN_IF_NOT_OK(shard()->Run(request, &progress, limit));
    // Other nodes apply the change after as many rounds as this node.
    distributed.rounds = consistency()->rounds_applied();
  }
  return DistributedCall(here(), context_.service, context_.rank, distributed).Run(limit);
}

Result<std::shared_ptr<const ArrangedRows>> Table::ArrangeRows(Request* request) const {
  using Arranged = Result<std::shared_ptr<const ArrangedRows>>;
  const Updater::Duplicates duplicates = shard()->updater().duplicates();
  // Staging a round's delta merges the rows.
  const bool is_staged = context_.mode.mode == Mode::kSync;
  if (is_staged && duplicates != Updater::Duplicates::kRefused) return Arranged(nullptr);
  auto rows = std::make_shared<ArrangedRows>();
  rows->order = RowOrder(request->row_ids, request->num_ids, spec().num_row);
  if (rows->order.is_of_list()) return Arranged(nullptr);
  const bool is_in_place = !is_staged && !spans_nodes_;
  if (duplicates != Updater::Duplicates::kOneByOne || !is_in_place) {
    const int64_t position = rows->order.FirstRepeated();
    if (position >= 0 && duplicates == Updater::Duplicates::kRefused) {
      return Status(Code::kValue, StrCat(Where("add"), ": row_ids[", position, "]: updater '",
                                         NameOf(spec().updater_kind()),
                                         "' expected every row once, received row ",
                                         request->row_ids[position], " more than once"));
    }
    // The servers of other nodes get the rows in the order of the list.
    const bool must_merge = position >= 0 && duplicates == Updater::Duplicates::kSummed;
    if (!is_in_place && !must_merge) return Arranged(nullptr);
  }
  if (is_in_place) {
    request->order = &rows->order;
    return Arranged(std::move(rows));
  }
  MergedRows* const merged = &rows->merged;
  const auto count = static_cast<size_t>(request->num_ids);
  merged->ids.resize(count);
  merged->values.resize(count * static_cast<size_t>(spec().num_col * SizeOf(spec().value_type())));
  const RowDelta delta{request->row_ids, request->num_ids, request->delta};
  const int64_t num_rows = MergeRows(delta, rows->order, spec().num_col, spec().value_type(),
                                     merged->ids.data(), merged->values.data());
  *request = Request::AddRows(merged->ids.data(), num_rows, merged->values.data());
  return Arranged(std::move(rows));
}

}  // namespace multiverso
