#include "table/table.h"

#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "table/distributed_call.h"
#include "table/staleness_gate.h"

namespace multiverso {
namespace {

constexpr int64_t kPage = 4096;

Partition PartitionOf(const TableSpec& spec, const TableContext& context) {
  const bool replicated = context.members->spans_nodes() && context.mode.mode == Mode::kSync;
  return Partition(*context.members, spec.num_row, replicated);
}

// Of the rows on this node.
StripeLayout LayoutOf(const TableSpec& spec, const TableContext& context) {
  return StripeLayout(PartitionOf(spec, context).node_rows().count(),
                      spec.num_col * SizeOf(spec.type()));
}

StagedShape ShapeOf(const TableSpec& spec, const TableContext& context) {
  return StagedShape{LayoutOf(spec, context), spec.num_col, spec.type()};
}

Result<ShardStorage> StorageOf(const TableSpec& spec, const TableContext& context) {
  auto updater = MakeUpdater(spec.updater_kind(), spec.type());
  if (!updater.ok()) return updater.status();
  const StripeLayout layout = LayoutOf(spec, context);
  const bool is_matrix = spec.kind == static_cast<int32_t>(TableKind::kMatrix);
  return ShardStorage::Plan(layout, updater.value()->state_slots(context.members->num_workers()),
                            updater.value()->counts_steps()
                                ? StepCells(layout, spec.num_col, /*row_by_row=*/is_matrix)
                                : StepCells());
}

}  // namespace

Result<TableBytes> Table::BytesOf(const TableSpec& spec, const TableContext& context) {
  Result<ShardStorage> storage = StorageOf(spec, context);
  if (!storage.ok()) return storage.status();
  Result<int64_t> consistency =
      Consistency::BytesFor(context.mode, ShapeOf(spec, context), context.members->num_workers(),
                            context.members->num_workers_here());
  if (!consistency.ok()) return consistency.status();
  return TableBytes{RoundUp(storage->segment_bytes(), kPage), consistency.value()};
}

Result<std::unique_ptr<Table>> Table::Attach(const TableSpec& spec, int64_t id, Segment segment,
                                             TableContext context) {
  Result<ShardStorage> storage = StorageOf(spec, context);
  if (!storage.ok()) return storage.status();
  auto updater = MakeUpdater(spec.updater_kind(), spec.type());
  if (!updater.ok()) return updater.status();
  std::unique_ptr<Table> table(new Table(spec, id, std::move(segment), context));
  storage->Attach(table->segment_.data());
  table->shard_ = std::make_unique<Shard>(
      LayoutOf(spec, context), spec.num_col, storage.value(), std::move(updater.value()),
      ShardUser{context.group->members().local_rank(), context.group->peers(),
                context.members->worker_id()});
  char* const beside = table->segment_.data() + RoundUp(storage->segment_bytes(), kPage);
  table->consistency_ =
      Consistency::Make(context.mode, ShapeOf(spec, context), beside, table->shard_.get(),
                        context.group, spec.name, context.members->is_worker());
  table->node_rounds_ = NodeRounds::Make(context.mode, id, ShapeOf(spec, context), beside,
                                         table->shard_.get(), context.group, spec.name);
  // Every rank writes the same values before anybody can use the table.
  for (int i = 0; i < kHyperCount; ++i) {
    table->shard_->hyper()->value[i].store(spec.hyper[i], std::memory_order_relaxed);
  }
  return table;
}

Table::Table(const TableSpec& spec, int64_t id, Segment segment, TableContext context)
    : spec_(spec),
      id_(id),
      segment_(std::move(segment)),
      context_(context),
      partition_(PartitionOf(spec, context)) {}

std::string Table::Where(const char* call) const {
  return StrCat("rank ", context_.members->rank(), ", table '", spec_.name, "', ", call);
}

Status Table::CheckWhole(const char* call, const void* data, int64_t count) const {
  if (!context_.members->is_worker()) {
    return Status(Code::kState, StrCat(Where(call), ": this rank is a server and no worker"));
  }
  if (count != spec_.count()) {
    return Status(Code::kValue,
                  StrCat(Where(call), ": expected ", spec_.count(), " elements, received ", count));
  }
  if (data == nullptr) {
    return Status(Code::kValue, StrCat(Where(call), ": expected a buffer, received null"));
  }
  return Status::Ok();
}

Status Table::CheckRows(const char* call, const int64_t* row_ids, int64_t num_ids, const void* data,
                        int64_t count) const {
  if (!context_.members->is_worker()) {
    return Status(Code::kState, StrCat(Where(call), ": this rank is a server and no worker"));
  }
  if (num_ids < 0 || num_ids > INT64_MAX / spec_.num_col || count != num_ids * spec_.num_col) {
    return Status(Code::kValue, StrCat(Where(call), ": expected ", num_ids, " rows of ",
                                       spec_.num_col, " elements, received ", count, " elements"));
  }
  if (num_ids > 0 && (row_ids == nullptr || data == nullptr)) {
    return Status(Code::kValue, StrCat(Where(call), ": expected a buffer, received null"));
  }
  // As unsigned numbers, negative ids are large ones. No branch, so that it runs in vectors.
  const auto rows = static_cast<uint64_t>(spec_.num_row);
  uint64_t bad = 0;
  for (int64_t i = 0; i < num_ids; ++i) {
    bad |= static_cast<uint64_t>(static_cast<uint64_t>(row_ids[i]) >= rows);
  }
  if (bad == 0) return Status::Ok();
  int64_t position = 0;
  while (static_cast<uint64_t>(row_ids[position]) < rows) ++position;
  return Status(Code::kIndex, StrCat(Where(call), ": row_ids[", position, "]: expected 0 to ",
                                     spec_.num_row - 1, ", received ", row_ids[position]));
}

Status Table::Get(void* out, Progress* progress, const WaitLimit& limit) {
  if (consistency_ != nullptr) return consistency_->Get(out, progress, limit);
  return shard_->Get(out, progress, limit);
}

Status Table::Add(const void* delta, Progress* progress, const WaitLimit& limit) {
  if (consistency_ != nullptr) return consistency_->Add(delta, progress, limit);
  return shard_->Add(delta, progress, limit);
}

Status Table::AddGet(const void* delta, void* out, Progress* progress, const WaitLimit& limit) {
  if (consistency_ != nullptr) return consistency_->AddGet(delta, out, progress, limit);
  return shard_->AddGet(delta, out, progress, limit);
}

bool Table::ExchangesInPlace() const {
  return consistency_ == nullptr || consistency_->ExchangesInPlace();
}

Status Table::Exchange(const TensorList& tensors, void* last, Progress* progress,
                       const WaitLimit& limit) {
  if (consistency_ != nullptr) return consistency_->Exchange(tensors, last, progress, limit);
  return shard_->Exchange(tensors, last, progress, limit);
}

Status Table::GetRows(const int64_t* row_ids, int64_t num_ids, void* out, Progress* progress,
                      const WaitLimit& limit) {
  if (consistency_ != nullptr) return consistency_->GetRows(row_ids, num_ids, out, progress, limit);
  return shard_->GetRows(row_ids, num_ids, out, progress, limit);
}

Status Table::AddRows(const int64_t* row_ids, int64_t num_ids, const void* delta,
                      Progress* progress, const WaitLimit& limit) {
  if (consistency_ != nullptr)
    return consistency_->AddRows(row_ids, num_ids, delta, progress, limit);
  return shard_->AddRows(row_ids, num_ids, delta, progress, limit);
}

Result<std::shared_ptr<const MergedRows>> Table::MergeDuplicates(const RowDelta& delta) const {
  using Merged = Result<std::shared_ptr<const MergedRows>>;
  if (updater().duplicates() == Updater::Duplicates::kOneByOne) return Merged(nullptr);
  const int64_t place = FindDuplicate(delta.ids, delta.count);
  if (place < 0) return Merged(nullptr);
  if (updater().duplicates() == Updater::Duplicates::kRefused) {
    return Status(
        Code::kValue,
        StrCat(Where("add"), ": row_ids[", place, "]: updater '", NameOf(spec_.updater_kind()),
               "' expected every row once, received row ", delta.ids[place], " more than once"));
  }
  auto merged = std::make_shared<MergedRows>();
  const auto count = static_cast<size_t>(delta.count);
  merged->ids.resize(count);
  merged->values.resize(count * static_cast<size_t>(spec_.num_col * SizeOf(spec_.type())));
  merged->ids.resize(static_cast<size_t>(
      MergeRows(delta, spec_.num_col, spec_.type(), merged->ids.data(), merged->values.data())));
  return Merged(std::move(merged));
}

void Table::Finish() {
  if (consistency_ != nullptr) consistency_->Finish();
}

void Table::ReachSyncPoint(const SyncPoint& fence) {
  if (consistency_ != nullptr) consistency_->ReachSyncPoint(fence);
}

CallDigest Table::CallsBefore(const SyncPoint& fence) const {
  return consistency_ == nullptr ? CallDigest() : consistency_->CallsBefore(fence);
}

Status Table::CompareAt(const SyncPoint& fence) {
  return consistency_ == nullptr ? Status::Ok() : consistency_->CompareAt(fence);
}

void Table::Depart() {
  if (consistency_ != nullptr) consistency_->Depart();
}

Status Table::Store(const void* values, Progress* progress, const WaitLimit& limit) {
  return shard_->Store(values, progress, limit);
}

Status Table::SetHyper(int32_t index, double value) {
  MV_RETURN_IF_NOT_OK(CheckHyper(spec_.updater_kind(), index, value));
  shard_->hyper()->value[index].store(value, std::memory_order_relaxed);
  return Status::Ok();
}

double Table::GetHyper(int32_t index) const {
  return shard_->hyper()->value[index].load(std::memory_order_relaxed);
}

TableRequest Table::HyperRequest(int32_t index, double value) const {
  TableRequest request;
  request.kind = RequestKind::kSetHyper;
  request.hyper = index;
  request.value = value;
  if (consistency_ != nullptr) request.rounds = consistency_->rounds_applied();
  return request;
}

bool Table::HasApplied(uint64_t rounds) const {
  return consistency_ == nullptr || consistency_->rounds_applied() >= rounds;
}

Status Table::CopyOut(int64_t area, int64_t first, int64_t count, void* out, Progress* progress,
                      const WaitLimit& limit, ReadAgain when) {
  const int64_t here = first - partition_.node_rows().first * spec_.num_col;
  return shard_->CopyOut(area, here, count, out, progress, limit, when);
}

Status Table::CopyIn(int64_t area, int64_t first, int64_t count, const void* values,
                     Progress* progress, const WaitLimit& limit) {
  const int64_t here = first - partition_.node_rows().first * spec_.num_col;
  return shard_->CopyIn(area, here, count, values, progress, limit);
}

Status Table::CopyStepsOut(RowRange rows, int64_t rows_per_step, uint32_t* steps,
                           Progress* progress, const WaitLimit& limit) {
  return shard_->CopyStepsOut(rows.first - partition_.node_rows().first, rows.count(),
                              rows_per_step, steps, progress, limit);
}

Status Table::CopyStepsIn(RowRange rows, int64_t rows_per_step, const uint32_t* steps,
                          Progress* progress, const WaitLimit& limit) {
  return shard_->CopyStepsIn(rows.first - partition_.node_rows().first, rows.count(), rows_per_step,
                             steps, progress, limit);
}

Status Table::Settle(const WaitLimit& limit) {
  return consistency_ == nullptr ? Status::Ok() : consistency_->Settle(limit);
}

std::vector<uint64_t> Table::Clocks() const {
  return consistency_ == nullptr ? std::vector<uint64_t>() : consistency_->Clocks();
}

void Table::StartFrom(uint64_t rounds) {
  if (consistency_ != nullptr) consistency_->StartFrom(rounds);
}

std::unique_ptr<Operation> Table::Start(const TableRequest& request, Instant deadline) {
  if (consistency_ == nullptr) return StartAtServers(request, deadline);
  return std::make_unique<StalenessGate>(this, consistency_.get(), request, deadline);
}

std::unique_ptr<Operation> Table::StartAtServers(const TableRequest& request, Instant deadline) {
  return std::make_unique<DistributedCall>(this, request, deadline);
}

Status Table::CheckRequest(const RequestHeader& header) const {
  if (header.kind == RequestKind::kSetHyper) {
    return CheckHyper(spec_.updater_kind(), static_cast<int32_t>(header.first), header.value);
  }
  const int64_t element_bytes = SizeOf(spec_.type());
  const bool of_rows = IsOfRows(header.kind);
  const int64_t unit = of_rows ? spec_.num_col * element_bytes : element_bytes;
  if (header.count > kChunkBytes / unit || header.bytes != header.count * unit) {
    return Status(Code::kTransport, StrCat("a request for ", header.count, " x ", unit,
                                           " bytes, with ", header.bytes));
  }
  if (of_rows) return Status::Ok();
  const RowRange rows = partition_.node_rows();
  if (header.first < rows.first * spec_.num_col ||
      header.first > rows.end * spec_.num_col - header.count) {
    return Status(Code::kTransport,
                  StrCat("a request for ", header.count, " elements from ", header.first,
                         " on; rows ", rows.first, " to ", rows.end - 1, " are here"));
  }
  return Status::Ok();
}

Status Table::CheckRowsHere(const std::vector<int64_t>& row_ids) const {
  const RowRange rows = partition_.node_rows();
  for (const int64_t row : row_ids) {
    if (rows.Contains(row)) continue;
    return Status(Code::kTransport, StrCat("a request for row ", row, "; rows ", rows.first, " to ",
                                           rows.end - 1, " are here"));
  }
  return Status::Ok();
}

RowRange Table::RowsAskedOf(size_t place) const {
  RowRange rows = partition_.RowsOf(place);
  const bool is_array = spec_.kind == static_cast<int32_t>(TableKind::kArray);
  if (!is_array || !updater().counts_steps()) return rows;
  // Whole stripes: a stripe of an array is updated in one piece.
  const Membership& members = *context_.members;
  const std::vector<int>& servers = partition_.servers();
  const int node = members.node_of(servers[place]);
  size_t first_place = place;
  while (first_place > 0 && members.node_of(servers[first_place - 1]) == node) --first_place;
  const int64_t node_first = partition_.RowsOf(first_place).first;
  const int64_t stripe = shard_->layout().rows_per_stripe();
  const auto cut = [&](int64_t row) { return node_first + (row - node_first) / stripe * stripe; };
  const bool is_last = place + 1 == servers.size() || members.node_of(servers[place + 1]) != node;
  return RowRange{cut(rows.first), is_last ? rows.end : cut(rows.end)};
}

void Table::CountFromShard(Chunk* chunk) const {
  const int64_t first = partition_.node_rows().first;
  chunk->first -= first * spec_.num_col;
  for (int64_t& row : chunk->ids) row -= first;
}

Status Table::Operate(Chunk* chunk, Progress* progress, const WaitLimit& limit) {
  switch (chunk->kind) {
    case RequestKind::kGet:
      return shard_->GetRange(chunk->first, chunk->count, chunk->out, progress, limit,
                              chunk->worker);
    case RequestKind::kAdd:
      return shard_->AddRange(chunk->first, chunk->count, chunk->delta, progress, limit,
                              chunk->worker);
    case RequestKind::kAddGet:
      return shard_->AddGetRange(chunk->first, chunk->count, chunk->delta, chunk->out, progress,
                                 limit, chunk->worker);
    case RequestKind::kStore:
      return shard_->StoreRange(chunk->first, chunk->count, chunk->delta, progress, limit);
    case RequestKind::kGetRows:
      return shard_->GetRows(chunk->ids.data(), chunk->count, chunk->out, progress, limit,
                             chunk->worker);
    case RequestKind::kAddRows:
      return shard_->AddRows(chunk->ids.data(), chunk->count, chunk->delta, progress, limit,
                             chunk->worker);
    case RequestKind::kSetHyper:
    case RequestKind::kReleased:
      break;
  }
  return Status(Code::kInternal, "a chunk of no operation");
}

}  // namespace multiverso
