#include "table/table.h"

#include <utility>

#include "base/text.h"
#include "table/distributed_call.h"

namespace multiverso {

std::string Table::Where(const char* call) const {
  return StrCat("rank ", context_.members->rank(), ", table '", spec().name, "', ", call);
}

Status Table::Check(const Request& request, int64_t count) const {
  if (request.kind == RequestKind::kSetHyper) {
    return CheckHyper(spec().updater_kind(), request.hyper, request.value);
  }
  const char* const call = NameOf(request.kind);
  if (!context_.members->is_worker()) {
    return Status(Code::kState, StrCat(Where(call), ": this rank is a server and no worker"));
  }
  if (IsOfRows(request.kind)) {
    MV_RETURN_IF_NOT_OK(CheckRows(request, count));
  } else if (count != spec().count()) {
    return Status(Code::kValue, StrCat(Where(call), ": expected ", spec().count(),
                                       " elements, received ", count));
  }
  if ((CarriesData(request.kind) && request.delta == nullptr && count > 0) ||
      (ReturnsData(request.kind) && request.out == nullptr && count > 0)) {
    return Status(Code::kValue, StrCat(Where(call), ": expected a buffer, received null"));
  }
  return Status::Ok();
}

Status Table::CheckRows(const Request& request, int64_t count) const {
  const int64_t num_ids = request.num_ids;
  const char* const call = NameOf(request.kind);
  if (num_ids < 0 || num_ids > INT64_MAX / spec().num_col || count != num_ids * spec().num_col) {
    return Status(Code::kValue, StrCat(Where(call), ": expected ", num_ids, " rows of ",
                                       spec().num_col, " elements, received ", count, " elements"));
  }
  if (num_ids > 0 && request.row_ids == nullptr) {
    return Status(Code::kValue, StrCat(Where(call), ": expected a buffer, received null"));
  }
  // As unsigned numbers, negative ids are large ones. Without a branch, the loop is vectorized.
  const auto rows = static_cast<uint64_t>(spec().num_row);
  const int64_t* const row_ids = request.row_ids;
  uint64_t bad = 0;
  for (int64_t i = 0; i < num_ids; ++i) {
    bad |= static_cast<uint64_t>(static_cast<uint64_t>(row_ids[i]) >= rows);
  }
  if (bad == 0) return Status::Ok();
  int64_t position = 0;
  while (static_cast<uint64_t>(row_ids[position]) < rows) ++position;
  return Status(Code::kIndex, StrCat(Where(call), ": row_ids[", position, "]: expected 0 to ",
                                     spec().num_row - 1, ", received ", row_ids[position]));
}

bool Table::RunsHere(RequestKind kind) const {
  // Options are kept on every node, also with replicas.
  return kind == RequestKind::kSetHyper ? context_.service == nullptr : !spans_nodes();
}

Status Table::Run(const Request& request, Progress* progress, const WaitLimit& limit) {
  if (request.kind == RequestKind::kSetHyper) return RunPastMode(request, limit);
  if (!spans_nodes()) return consistency()->Run(request, progress, limit);
  MV_RETURN_IF_NOT_OK(consistency()->Enter(request.kind, progress, limit));
  MV_RETURN_IF_NOT_OK(RunPastMode(request, limit));
  // All servers have answered, so workers that learn of the add can read it.
  consistency()->Leave(request.kind);
  return Status::Ok();
}

Status Table::RunPastMode(const Request& request, const WaitLimit& limit) {
  Progress progress;
  if (context_.service == nullptr) return shard()->Run(request, &progress, limit);
  Request distributed = request;
  if (request.kind == RequestKind::kSetHyper) {
    MV_RETURN_IF_NOT_OK(shard()->Run(request, &progress, limit));
    // Other nodes follow when they have applied as many rounds as this one.
    distributed.rounds = consistency()->rounds_applied();
  }
  return DistributedCall(here(), context_.service, context_.group, distributed).Run(limit);
}

Result<std::shared_ptr<const MergedRows>> Table::MergeDuplicates(const Request& request) const {
  using Merged = Result<std::shared_ptr<const MergedRows>>;
  const Updater::Duplicates duplicates = shard()->updater().duplicates();
  if (request.kind != RequestKind::kAddRows || duplicates == Updater::Duplicates::kOneByOne) {
    return Merged(nullptr);
  }
  const int64_t place = FindDuplicate(request.row_ids, request.num_ids);
  if (place < 0) return Merged(nullptr);
  if (duplicates == Updater::Duplicates::kRefused) {
    return Status(Code::kValue,
                  StrCat(Where("add"), ": row_ids[", place, "]: updater '",
                         NameOf(spec().updater_kind()), "' expected every row once, received row ",
                         request.row_ids[place], " more than once"));
  }
  auto merged = std::make_shared<MergedRows>();
  const auto count = static_cast<size_t>(request.num_ids);
  merged->ids.resize(count);
  merged->values.resize(count * static_cast<size_t>(spec().num_col * SizeOf(spec().type())));
  const RowDelta delta{request.row_ids, request.num_ids, request.delta};
  merged->ids.resize(static_cast<size_t>(
      MergeRows(delta, spec().num_col, spec().type(), merged->ids.data(), merged->values.data())));
  return Merged(std::move(merged));
}

}  // namespace multiverso
