// Requests for parts of tables and for single elements.

#include "base/text.h"
#include "calls/table.h"

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

}  // namespace multiverso
