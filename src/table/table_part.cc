// Requests for parts of tables and for single elements.
#include <cstring>
#include <numeric>
#include <vector>

#include "base/text.h"
#include "table/table.h"

namespace multiverso {
namespace {

bool IsInRange(int64_t first, int64_t count, int64_t size) {
  return first >= 0 && count >= 0 && first <= size && count <= size - first;
}

Status RangeError(const std::string& where, const char* what, int64_t first, int64_t count,
                  int64_t size) {
  return Status(Code::kIndex, StrCat(where, ": expected ", what, " from 0 to ", size - 1,
                                     ", received ", count, " from ", first, " on"));
}

}  // namespace

Status Table::PlacePart(const TablePart& part, Request* request) const {
  const RequestKind kind = request->kind;
  const char* const call = NameOf(kind);
  if (!members().is_worker()) {
    return Status(Code::kState, StrCat(Where(call), ": this rank is a server and no worker"));
  }
  if (spec().is_hash()) {
    return Status(Code::kValue,
                  StrCat(Where(call), ": ", spec().Describe(), " does not have this operation"));
  }
  const int64_t columns = spec().num_col;
  if (!IsInRange(part.first_row, part.num_row, spec().num_row)) {
    return RangeError(Where(call), "rows", part.first_row, part.num_row, spec().num_row);
  }
  if (!IsInRange(part.first_col, part.num_col, columns)) {
    return RangeError(Where(call), "columns", part.first_col, part.num_col, columns);
  }
  request->count = part.num_row * part.num_col;
  request->first = part.first_row * columns + (request->count == 0 ? 0 : part.first_col);
  const bool is_of_rows = part.num_col == columns || request->count == 0;
  if (!is_of_rows && part.num_row > 1) request->width = part.num_col;
  if (!request->HasBuffers() && request->count > 0) {
    return Status(Code::kValue, StrCat(Where(call), ": expected a buffer, received null"));
  }
  const Refusal* refusal = nullptr;
  if (IsAtomic(kind)) {
    refusal = against_atomics_;
  } else if (IsAdd(kind)) {
    refusal = is_of_rows ? against_part_of_array_ : against_part_of_row_;
  }
  if (refusal == nullptr) return Status::Ok();
  return refusal->status().In(StrCat(Where(call), ": ", spec().Describe()));
}

// In sync mode a round sums whole rows, so a part becomes a request for the rows that it touches.
// The columns outside it are zeros in an add, and are read and dropped in a get.
Status Table::RunPartInRound(const Request& part, const WaitLimit& limit) {
  const RowRange rows = RowsOfPart(part, spec().num_col);
  std::vector<int64_t> ids(static_cast<size_t>(rows.count()));
  std::iota(ids.begin(), ids.end(), rows.first);
  const bool is_add = IsAdd(part.kind);
  const auto run_rows = [&](const void* delta, void* out) {
    const RequestKind kind = is_add ? RequestKind::kAddRows : RequestKind::kGetRows;
    Request of_rows = Request::Of(kind, ids.data(), rows.count(), delta, out);
    of_rows.is_peek = part.is_peek;
    return Run(of_rows, limit);
  };
  const int64_t columns = spec().num_col;
  if (part.count == rows.count() * columns) return run_rows(part.delta, part.out);
  const auto element = static_cast<size_t>(SizeOf(spec().value_type()));
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

}  // namespace multiverso
