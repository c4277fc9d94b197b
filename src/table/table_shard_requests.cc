// Which requests of other nodes this node can serve.
#include "base/text.h"
#include "table/table_shard.h"

namespace multiverso {

Status TableShard::CheckRequest(const RequestHeader& header) const {
  if (header.is_encoded() && spec_.value_type() != DType::kFloat32) {
    return Status(Code::kTransport, StrCat("a request with encoded values of ", spec_.Describe()));
  }
  if (header.kind == RequestKind::kSetHyper) {
    return CheckHyper(spec_.updater_kind(), static_cast<int32_t>(header.first), header.value);
  }
  if (header.version > static_cast<uint64_t>(Request::kLastVersion)) {
    return Status(Code::kTransport, StrCat("a request with version ", header.version));
  }
  const int64_t element_bytes = SizeOf(spec_.value_type());
  int64_t unit = HasIds(header.kind) ? spec_.bytes_per_id(header.kind) : element_bytes;
  if (unit == 0) unit = sizeof(int64_t);  // then the bytes are those of the ids
  const bool has_bytes = header.kind != RequestKind::kTouch;
  if (has_bytes && (header.count > kChunkBytes / unit || header.bytes != header.count * unit)) {
    return Status(Code::kTransport, StrCat("a request for ", header.count, " x ", unit,
                                           " bytes, with ", header.bytes));
  }
  if (NeedsKeys(header.kind) && !spec_.is_hash()) {
    return Status(Code::kTransport, StrCat("a request for keys of ", spec_.Describe()));
  }
  if (IsAtomic(header.kind) && !spec_.has_atomics()) {
    return Status(Code::kTransport,
                  StrCat("a request for ", NameOf(header.kind), " of ", spec_.Describe()));
  }
  if (HasIds(header.kind)) return Status::Ok();
  const RowRange rows = partition_.node_rows();
  const int64_t width = header.width;
  const int64_t column = header.first % spec_.num_col;
  // Each update of an updater with state per row is of whole rows.
  const bool must_be_rows = IsAdd(header.kind) && shard_->updater().row_slots() > 0;
  const bool is_of_rows = column == 0 && header.count % spec_.num_col == 0;
  bool fits =
      header.first >= rows.first * spec_.num_col && (!must_be_rows || (width == 0 && is_of_rows));
  if (width == 0) {
    fits = fits && header.first <= rows.end * spec_.num_col - header.count;
  } else {
    fits = fits && width <= spec_.num_col - column && header.count % width == 0 &&
           header.first / spec_.num_col <= rows.end - header.count / width;
  }
  if (!fits) {
    return Status(Code::kTransport,
                  StrCat("a request for ", header.count, " elements from element ", header.first,
                         "; this node has rows ", rows.first, " to ", rows.end - 1));
  }
  return Status::Ok();
}

Status TableShard::CheckRows(RequestKind kind, const int64_t* row_ids, int64_t num_ids) const {
  const RowRange rows = partition_.node_rows();
  for (int64_t i = 0; i < num_ids; ++i) {
    if (rows.Contains(spec_.RowOfId(kind, row_ids[i]))) continue;
    return Status(Code::kTransport,
                  StrCat("a request for ", IsOfKeys(kind) ? "key " : "row ", row_ids[i],
                         "; this node has rows ", rows.first, " to ", rows.end - 1));
  }
  return Status::Ok();
}

}  // namespace multiverso
