#include "calls/in_rounds.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <vector>

#include "shard/keyed_shard.h"

namespace multiverso {

Status InRounds::Run(const Request& request, const WaitLimit& limit) {
  if (IsOfKeys(request.kind)) return RunKeys(request, limit);
  return request.IsPart() ? RunPart(request, limit) : RunRows(request, limit);
}

Status InRounds::RunRows(const Request& request, const WaitLimit& limit) {
  // The rows of an add must exist before it is staged.
  if (servers_ != nullptr && IsAdd(request.kind)) {
    MV_RETURN_IF_NOT_OK(servers_->Touch(request, limit));
  }
  return here_->consistency()->Run(request, limit);
}

// The columns outside the part are zeros in an add, and are read and dropped in a get.
Status InRounds::RunPart(const Request& part, const WaitLimit& limit) {
  const RowRange rows = RowsOfPart(part, here_->spec().num_col);
  std::vector<int64_t> ids(static_cast<size_t>(rows.count()));
  std::iota(ids.begin(), ids.end(), rows.first);
  const bool is_add = IsAdd(part.kind);
  const auto run_rows = [&](const void* delta, void* out) {
    const RequestKind kind = is_add ? RequestKind::kAddRows : RequestKind::kGetRows;
    Request of_rows = Request::Of(kind, ids.data(), rows.count(), delta, out);
    of_rows.is_peek = part.is_peek;
    return RunRows(of_rows, limit);
  };
  const int64_t columns = here_->spec().num_col;
  if (part.count == rows.count() * columns) return run_rows(part.delta, part.out);
  const auto element = static_cast<size_t>(SizeOf(here_->spec().value_type()));
  const auto row_bytes = static_cast<size_t>(columns) * element;
  const size_t bytes_in_row = static_cast<size_t>(part.count / rows.count()) * element;
  std::vector<char> whole(ids.size() * row_bytes);
  char* const first = whole.data() + static_cast<size_t>(part.first % columns) * element;
  for (size_t i = 0; is_add && i < ids.size(); ++i) {
    std::memcpy(first + i * row_bytes, static_cast<const char*>(part.delta) + i * bytes_in_row,
                bytes_in_row);
  }
  if (is_add) return run_rows(whole.data(), nullptr);
  MV_RETURN_IF_NOT_OK(run_rows(nullptr, whole.data()));
  for (size_t i = 0; i < ids.size(); ++i) {
    std::memcpy(static_cast<char*>(part.out) + i * bytes_in_row, first + i * row_bytes,
                bytes_in_row);
  }
  return Status::Ok();
}

Status InRounds::RunKeys(const Request& request, const WaitLimit& limit) {
  const bool is_add = IsAdd(request.kind);
  const auto run = [&](Request of_rows) -> Status {
    of_rows.is_peek = request.is_peek;
    if (!is_add) return RunRows(of_rows, limit);
    MV_ASSIGN_OR_RETURN(const auto arranged, arranger_->Arrange(&of_rows));
    return RunRows(of_rows, limit);
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
    return here_->shard()->Run(locate, limit);
  };
  std::vector<int64_t> rows;
  // An add that is refused must not give rows to keys.
  if (is_add && here_->consistency()->HasFinished()) return AddAfterFinish();
  MV_RETURN_IF_NOT_OK(find(&rows));
  if (is_add) return run(Request::AddRows(rows.data(), request.num_ids, request.delta));
  const auto has_row = [](int64_t row) { return row >= 0; };
  const auto row_bytes = static_cast<size_t>(here_->spec().bytes_per_id(request.kind));
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
    if (!request.is_peek && !here_->consistency()->HasFinished()) break;
    // Outside rounds, the values may be those after a round that gave rows to further keys.
    const std::vector<int64_t> before = rows;
    MV_RETURN_IF_NOT_OK(find(&rows));
    has_changed = rows != before;
  }
  auto* const out = static_cast<char*>(request.out);
  const char* next = values.data();
  for (size_t i = 0; i < count; ++i) {
    if (rows[i] < 0) {
      here_->shard()->AsKeyed()->CopyInitial(request.row_ids[i], out + i * row_bytes);
    } else {
      std::memcpy(out + i * row_bytes, next, row_bytes);
      next += row_bytes;
    }
  }
  return Status::Ok();
}

}  // namespace multiverso
