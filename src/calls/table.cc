#include "calls/table.h"

#include <algorithm>
#include <utility>

#include "base/compiler.h"
#include "base/text.h"

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
      arranger_(*here_, context.mode.sums_in_rounds(),
                !context.mode.sums_in_rounds() && context.service == nullptr, Where("add")),
      without_mode_(shard()),
      in_mode_(consistency()) {
  const FeatureSet used = features();
  against_atomics_ = FindRefusal(used.With(Feature::kAtomics));
  against_part_of_row_ = FindRefusal(used.With(Feature::kPartOfRow));
  against_part_of_array_ = FindRefusal(used.With(Feature::kPartOfArray, used.Has(Feature::kArray)));
  if (context.service != nullptr) {
    servers_ = std::make_unique<Servers>(here_.get(), context.service, context.rank);
    without_mode_ = servers_.get();
    consistency()->PassTo(without_mode_, members().is_leader() ? context.rounds : nullptr);
  }
  if (context.mode.sums_in_rounds()) {
    in_rounds_ = std::make_unique<InRounds>(here_.get(), servers_.get(), &arranger_);
    in_mode_ = in_rounds_.get();
  }
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
  const Status status = RunOnRoute(request, limit);
  // Where the others do not end its process, it may find so after the call.
  if (!status.ok() || !is_excluded()) return status;
  return Status(Code::kState, StrCat(context_.rank->state()->CheckNotExcluded().text(),
                                     ". This call may or may not have been made"));
}

Status Table::RunOnRoute(const Request& request, const WaitLimit& limit) {
  RequestRunner* const route = Has(request.kind, kIsAtOnce) ? without_mode_ : in_mode_;
  if (!arranger_.MustArrange(request)) return route->Run(request, limit);
  Request add = request;
  MV_ASSIGN_OR_RETURN(const auto rows, arranger_.Arrange(&add));
  return route->Run(add, limit);
}

Result<const void*> Table::Memory() const {
  MV_RETURN_IF_NOT_OK(CheckSupported(features().With(Feature::kLiveView))
                          .In(StrCat(Where("view"), ": ", spec().Describe())));
  return static_cast<const void*>(shard()->parameters());
}

Result<KeyCounts> Table::CountKeys(const WaitLimit& limit) {
  // A row of each node that has rows stands for the node.
  std::vector<int64_t> rows;
  for (const RowRange& node : RowsOfNodes()) rows.push_back(node.first);
  std::vector<KeyCounts> counts(rows.size());
  MV_RETURN_IF_NOT_OK(
      without_mode()->Run(Request::Of(RequestKind::kCountsOfRows, rows.data(),
                                      static_cast<int64_t>(rows.size()), nullptr, counts.data()),
                          limit));
  KeyCounts sum;
  for (const KeyCounts& count : counts) sum += count;
  return sum;
}

}  // namespace multiverso
