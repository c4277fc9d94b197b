#include "table/table.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/compiler.h"
#include "base/text.h"
#include "shard/keyed_shard.h"
#include "table/distributed_call.h"

namespace multiverso {
namespace {

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
  const int64_t element_bytes =
      ReturnsNumbers(request.kind) ? int64_t{sizeof(int64_t)} : SizeOf(spec.value_type());
  const int64_t elements = spec.bytes_per_id(request.kind) / element_bytes;
  if (num_ids < 0 || num_ids > INT64_MAX / std::max<int64_t>(elements, 1) ||
      count != num_ids * elements) {
    return Status(Code::kValue, StrCat(table.Where(call), ": expected ", num_ids, " rows of ",
                                       elements, " elements, received ", count, " elements"));
  }
  if (!RowOrder::CanOrder(num_ids, spec.num_row)) {
    return Status(Code::kValue, StrCat(table.Where(call),
                                       ": expected fewer rows in one call, received ", num_ids));
  }
  if (num_ids > 0 && request.row_ids == nullptr) {
    return Status(Code::kValue, StrCat(table.Where(call), ": expected a buffer, received null"));
  }
  if (IsOfKeys(request.kind)) return Status::Ok();
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

// Not inlined, to keep Check short.
MV_NOINLINE Status CheckSlowly(const Table& table, const Request& request, int64_t count) {
  const TableSpec& spec = table.spec();
  if (request.kind == RequestKind::kSetHyper) {
    const auto hyper = static_cast<int32_t>(request.first);
    MV_RETURN_IF_NOT_OK(CheckHyper(spec.updater_kind(), hyper, request.value));
    const FeatureSet used = FeaturesOfHyper(spec.updater_kind(), hyper, request.value);
    if (!used.Has(Feature::kClips)) return Status::Ok();
    return CheckSupported(used | table.features_of_session());
  }
  const char* const call = NameOf(request.kind);
  if (!table.members().is_worker()) {
    return Status(Code::kState, StrCat(table.Where(call), ": this rank is a server and no worker"));
  }
  if (NeedsKeys(request.kind) != spec.is_hash()) {
    return Status(Code::kValue, StrCat(table.Where(call), ": ", spec.Describe(),
                                       " does not have this operation"));
  }
  if (HasIds(request.kind)) {
    MV_RETURN_IF_NOT_OK(CheckRows(table, request, count));
  } else if (count != spec.count()) {
    return Status(Code::kValue, StrCat(table.Where(call), ": expected ", spec.count(),
                                       " elements, received ", count));
  }
  if (!request.HasBuffers() && count != 0) {
    return Status(Code::kValue, StrCat(table.Where(call), ": expected a buffer, received null"));
  }
  if (!Overlaps(request, spec.bytes())) return Status::Ok();
  return Status(Code::kValue, StrCat(table.Where(call),
                                     ": expected the same memory for delta and result, or "
                                     "separate memory, received memory that overlaps"));
}

// Runs a request for keys in sync mode: finds the rows of the keys, and runs a request for these
// rows in the round. Blocks to its end.
Status RunKeysInRound(Table* table, const Request& request, const WaitLimit& limit) {
  const bool is_add = IsAdd(request.kind);
  const auto run = [&](Request of_rows) -> Status {
    of_rows.is_peek = request.is_peek;
    std::shared_ptr<const ArrangedAdd> arranged;
    if (is_add) {
      MV_ASSIGN_OR_RETURN(arranged, table->Arrange(&of_rows));
    }
    return table->consistency()->Run(of_rows, limit);
  };
  Request locate = request;
  locate.kind = RequestKind::kLocateKeys;
  if (request.kind == RequestKind::kGetKeys) {
    // Adds of the round, for which this get waits, may give rows to keys.
    MV_RETURN_IF_NOT_OK(run(Request::GetRows(nullptr, 0, request.out)));
    locate.kind = RequestKind::kFindKeys;
  }
  const auto count = static_cast<size_t>(request.num_ids);
  const auto find = [&](std::vector<int64_t>* rows) -> Status {
    rows->resize(count);
    locate.out = rows->data();
    locate.delta = nullptr;
    return table->RunWithoutMode(locate, limit);
  };
  std::vector<int64_t> rows;
  // An add that is refused must not give rows to keys.
  if (is_add && table->consistency()->HasFinished()) return AddAfterFinish();
  MV_RETURN_IF_NOT_OK(find(&rows));
  if (is_add) return run(Request::AddRows(rows.data(), request.num_ids, request.delta));
  const auto has_row = [](int64_t row) { return row >= 0; };
  const auto row_bytes = static_cast<size_t>(table->spec().bytes_per_id(request.kind));
  std::vector<char> values;
  for (bool has_changed = true; has_changed;) {
    if (std::all_of(rows.begin(), rows.end(), has_row)) {
      return run(Request::GetRows(rows.data(), request.num_ids, request.out));
    }
    std::vector<int64_t> found;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(found), has_row);
    values.resize(found.size() * row_bytes);
    MV_RETURN_IF_NOT_OK(
        run(Request::GetRows(found.data(), static_cast<int64_t>(found.size()), values.data())));
    if (!request.is_peek && !table->consistency()->HasFinished()) break;
    // Outside rounds, the values may be those after a round that gave rows to further keys.
    const std::vector<int64_t> before = rows;
    MV_RETURN_IF_NOT_OK(find(&rows));
    has_changed = rows != before;
  }
  auto* const out = static_cast<char*>(request.out);
  const char* next = values.data();
  for (size_t i = 0; i < count; ++i) {
    if (rows[i] < 0) {
      table->shard()->AsKeyed()->CopyInitial(request.row_ids[i], out + i * row_bytes);
    } else {
      std::memcpy(out + i * row_bytes, next, row_bytes);
      next += row_bytes;
    }
  }
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
      may_be_excluded_(context.service != nullptr || members().survives_losses()),
      exclusion_(&context.rank->peers()->own_exclusion()),
      calls_servers_(context.service != nullptr && !context.mode.sums_in_rounds()),
      clips_gradients_(ClipsGradients(spec().updater_kind())) {
  const FeatureSet used = features();
  against_atomics_ = FindRefusal(used.With(Feature::kAtomics));
  against_part_of_row_ = FindRefusal(used.With(Feature::kPartOfRow));
  against_part_of_array_ = FindRefusal(used.With(Feature::kPartOfArray, used.Has(Feature::kArray)));
  if (context.service == nullptr) return;
  touch_ = SpanningTouch::Make(here_.get(), context.service, context.rank);
  here_->consistency()->PassTo(&without_mode_, members().is_leader() ? context.rounds : nullptr);
}

Status Table::Check(const Request& request, int64_t count) const {
  const bool is_whole = !HasIds(request.kind) && request.kind != RequestKind::kSetHyper;
  if (is_whole && count == spec().count() && !spec().is_hash() && request.HasBuffers() &&
      !Overlaps(request, spec().bytes()) && members().is_worker()) {
    return Status::Ok();
  }
  return CheckSlowly(*this, request, count);
}

Status Table::Run(const Request& request, const WaitLimit& limit) {
  const auto is_excluded = [this] { return exclusion_->load(std::memory_order_acquire) != 0; };
  // A rank that was suspended may find that the others continue without it, or have ended the
  // session.
  if (may_be_excluded_ || is_excluded()) {
    MV_RETURN_IF_NOT_OK(context_.rank->state()->CheckNotExcluded());
  }
  Status status = RunHere(request, limit);
  // Where the others do not end its process, it may find so after the call.
  if (!status.ok() || !is_excluded()) return status;
  return Status(Code::kState, StrCat(context_.rank->state()->CheckNotExcluded().text(),
                                     ". This call may or may not have been made"));
}

Status Table::RunHere(const Request& request, const WaitLimit& limit) {
  if (request.is_peek && !EveryGetIsCollective()) return RunWithoutMode(request, limit);
  if (NeedsKeys(request.kind)) {
    const bool is_of_values = IsAdd(request.kind) || request.kind == RequestKind::kFetchKeys ||
                              request.kind == RequestKind::kGetKeys;
    // The other calls see the keys as they are, and take part in no round.
    if (!is_of_values) return RunWithoutMode(request, limit);
    if (context_.mode.sums_in_rounds()) return RunKeysInRound(this, request, limit);
  }
  if (request.IsPart()) {
    if (IsAtomic(request.kind)) return RunWithoutMode(request, limit);
    if (context_.mode.sums_in_rounds()) return RunPartInRound(request, limit);
  }
  if (request.kind == RequestKind::kSetHyper) return RunWithoutMode(request, limit);
  // In sync mode over several nodes, the rows of an add must exist before it is staged.
  if (touch_ != nullptr && !calls_servers_ && IsAdd(request.kind)) {
    MV_RETURN_IF_NOT_OK(touch_->Touch(request, limit));
  }
  return consistency()->Run(request, limit);
}

Status Table::RunWithoutMode(const Request& request, const WaitLimit& limit) {
  if (context_.service == nullptr) return shard()->Run(request, limit);
  if (touch_ != nullptr && CarriesData(request.kind)) {
    MV_RETURN_IF_NOT_OK(touch_->Touch(request, limit));
  }
  Request distributed = request;
  if (request.kind == RequestKind::kSetHyper) {
    MV_RETURN_IF_NOT_OK(shard()->Run(request, limit));
    // Other nodes apply the change after as many rounds as this node.
    distributed.rounds = consistency()->rounds_applied();
  }
  std::vector<RowRange> rows;  // empty for all rows
  if (request.IsPart()) {
    if (request.count == 0) return Status::Ok();
    rows.push_back(RowsOfPart(request, spec().num_col));
  }
  return RunOnRows(distributed, rows, limit);
}

Status Table::RunOnRows(const Request& request, const std::vector<RowRange>& rows,
                        const WaitLimit& limit) {
  return DistributedCall(here(), context_.service, context_.rank, request, rows).Run(limit);
}

Result<const void*> Table::Memory() const {
  const bool is_divided = partition().node_rows().count() != spec().num_row;
  const FeatureSet used = spec().features() | context_.mode.features();
  MV_RETURN_IF_NOT_OK(
      CheckSupported(used.With(Feature::kLiveView).With(Feature::kNodes, is_divided))
          .In(StrCat(Where("view"), ": ", spec().Describe())));
  return static_cast<const void*>(shard()->parameters());
}

Result<KeyCounts> Table::CountKeys(const WaitLimit& limit) {
  // A row of each node that has rows stands for the node.
  std::vector<int64_t> rows;
  for (const RowRange& node : RowsOfNodes()) rows.push_back(node.first);
  std::vector<KeyCounts> counts(rows.size());
  MV_RETURN_IF_NOT_OK(
      RunWithoutMode(Request::Of(RequestKind::kCountsOfRows, rows.data(),
                                 static_cast<int64_t>(rows.size()), nullptr, counts.data()),
                     limit));
  KeyCounts sum;
  for (const KeyCounts& count : counts) sum += count;
  return sum;
}

}  // namespace multiverso
