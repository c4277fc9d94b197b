// Which rows of a table have changed since a version, and their values.
#include <algorithm>
#include <vector>

#include "base/text.h"
#include "calls/table.h"

namespace multiverso {

std::vector<RowRange> Table::RowsOfNodes() const {
  std::vector<RowRange> ranges;
  for (const Partition::NodePart& part : partition().nodes()) {
    if (part.rows.count() > 0) ranges.push_back(part.rows);
  }
  return ranges;
}

int64_t Table::MaxChanges() const {
  constexpr int64_t kMostOfRows = int64_t{1} << 20;
  int64_t stripes = 0;
  for (const RowRange& rows : RowsOfNodes()) {
    stripes += TableShard::LayoutOf(spec(), rows.count()).stripes();
  }
  return std::max(stripes, std::min(stripes + partition().node_rows().count(), kMostOfRows));
}

Result<int64_t> Table::ListChanges(int64_t since, std::vector<RowRange>* rows,
                                   const WaitLimit& limit) {
  if (since < 0 || since >= Request::kLastVersion) {
    return Status(Code::kValue,
                  StrCat("since: expected 0 to ", Request::kLastVersion - 1, ", received ", since));
  }
  if (context_.mode.sums_in_rounds()) {
    MV_RETURN_IF_NOT_OK(consistency()->Run(Request::GetRows(nullptr, 0, nullptr), limit));
  }
  const Result<int64_t> version = ListChangesNow(since, rows, limit);
  if (version.ok() && static_cast<int64_t>(rows->size()) > MaxChanges()) {
    MV_RETURN_IF_NOT_OK(ListRows(RowsOfNodes(), since, Listing::kStripes, rows, limit).status());
  }
  // After Finish, the others apply rounds during this call, whose changes the next call must list.
  return version.ok() && consistency()->HasFinished() ? since : version;
}

Result<int64_t> Table::ListChangesNow(int64_t since, std::vector<RowRange>* rows,
                                      const WaitLimit& limit) {
  // Rows that have not been touched have their initial values.
  const bool lists_all = since == 0 && !spec().is_lazy();
  return ListRows(RowsOfNodes(), since, lists_all ? Listing::kAll : Listing::kRows, rows, limit);
}

Result<int64_t> Table::ListChangesHere(int64_t since, RowRange here, std::vector<RowRange>* rows,
                                       size_t save, const WaitLimit& limit) {
  std::vector<RowRange> changed;
  const Listing listing = since == 0 ? Listing::kAll : Listing::kRows;
  const Result<int64_t> version =
      ListRows({partition().node_rows()}, since, listing, &changed, limit);
  if (version.ok()) shard()->HoldVersion(save, static_cast<uint64_t>(version.value()));
  rows->clear();
  for (const RowRange& range : changed) {
    AppendRows(rows, RowRange{std::max(range.first, here.first), std::min(range.end, here.end)});
  }
  return version;
}

Result<int64_t> Table::ListRows(const std::vector<RowRange>& nodes, int64_t since, Listing listing,
                                std::vector<RowRange>* rows, const WaitLimit& limit) {
  Request request;
  request.kind = RequestKind::kVersionsOfRows;
  request.rounds = consistency()->rounds_applied();
  std::vector<RowRange> stripes;
  std::vector<int64_t> first_rows;
  for (const RowRange& node : nodes) {
    const int64_t step = TableShard::LayoutOf(spec(), node.count()).rows_per_stripe();
    for (int64_t row = node.first; row < node.end; row += step) {
      stripes.push_back(RowRange{row, std::min(row + step, node.end)});
      first_rows.push_back(row);
    }
  }
  std::vector<uint64_t> versions(stripes.size());
  // The version is a time, so that the callers on different nodes, which do not know each other's
  // versions, list few changes twice.
  const int64_t now = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  const int64_t version = std::max({now, since + 1, static_cast<int64_t>(shard()->version()) + 1});
  request.version = static_cast<uint64_t>(version);
  request.row_ids = first_rows.data();
  request.num_ids = static_cast<int64_t>(first_rows.size());
  request.out = versions.data();
  MV_RETURN_IF_NOT_OK(without_mode()->Run(request, limit));
  rows->clear();
  std::vector<RowRange> listed;
  for (size_t i = 0; i < stripes.size(); ++i) {
    if (listing != Listing::kAll && versions[i] <= static_cast<uint64_t>(since)) continue;
    listed.assign(1, stripes[i]);
    // Other nodes say which of their stripes have changed.
    if (listing == Listing::kRows && since != 0 &&
        partition().node_rows().Contains(stripes[i].first)) {
      listed.clear();
      MV_RETURN_IF_NOT_OK(
          shard()->ListChangedRows(stripes[i].first, static_cast<uint64_t>(since), &listed, limit));
    }
    for (const RowRange& range : listed) AppendRows(rows, range);
  }
  return version;
}

Status Table::GetRanges(const std::vector<RowRange>& ranges, void* out, const WaitLimit& limit) {
  Request get = Request::Get(out);
  get.is_peek = true;
  get.rounds = consistency()->rounds_applied();
  if (servers_ != nullptr) {
    return ranges.empty() ? Status::Ok() : servers_->RunOnRows(get, ranges, limit);
  }
  const int64_t row_bytes = spec().num_col * SizeOf(spec().value_type());
  for (const RowRange& rows : ranges) {
    get.first = rows.first * spec().num_col;
    get.count = rows.count() * spec().num_col;
    get.out = static_cast<char*>(out) + rows.first * row_bytes;
    MV_RETURN_IF_NOT_OK(shard()->Run(get, limit));
  }
  return Status::Ok();
}

}  // namespace multiverso
