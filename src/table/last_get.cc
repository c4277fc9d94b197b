#include "table/last_get.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "memory/limits.h"

namespace multiverso {

LastGet::LastGet(const TableSpec& spec, RowRange here, List list, Fetch fetch)
    : rows_(spec.num_row),
      row_bytes_(spec.num_col * SizeOf(spec.value_type())),
      list_(std::move(list)),
      fetch_(std::move(fetch)) {
  for (const RowRange& rows : {RowRange{0, here.first}, RowRange{here.end, rows_}}) {
    if (rows.count() > 0) elsewhere_.push_back(rows);
  }
  if (here.count() == 0) elsewhere_ = {RowRange{0, rows_}};
}

Status LastGet::FetchAll(void* out, const WaitLimit& limit) const {
  return fetch_({RowRange{0, rows_}}, out, limit);
}

void LastGet::CopyRows(RowRange rows, const void* from, void* to) const {
  const int64_t offset = rows.first * row_bytes_;
  std::memcpy(static_cast<char*>(to) + offset, static_cast<const char*>(from) + offset,
              static_cast<size_t>(rows.count() * row_bytes_));
}

Status LastGet::Run(void* out, const WaitLimit& limit) {
  const std::unique_lock<std::mutex> guard(mutex_, std::try_to_lock);
  if (!guard.owns_lock() || CountRows(elsewhere_) * row_bytes_ < kMinBytes) {
    return FetchAll(out, limit);
  }
  if (gets_until_trial_ > 0) {
    --gets_until_trial_;
    return FetchAll(out, limit);
  }
  return RunWith(out, limit);
}

Status LastGet::RunWith(void* out, const WaitLimit& limit) {
  std::vector<RowRange> changed;
  MV_ASSIGN_OR_RETURN(const int64_t version, list_(version_, &changed, limit));
  std::vector<RowRange> wanted;
  for (const RowRange& rows : changed) {
    for (const RowRange& part : elsewhere_) {
      const RowRange both{std::max(rows.first, part.first), std::min(rows.end, part.end)};
      if (both.count() > 0) wanted.push_back(both);
    }
  }
  const int64_t kept_bytes = CountRows(elsewhere_) * row_bytes_;
  if (version_ > 0 && 2 * CountRows(wanted) <= CountRows(elsewhere_)) {
    vain_gets_ = 0;
  } else {
    if (version_ > 0) ++vain_gets_;
    if (vain_gets_ == kMaxVainGets) {
      vain_gets_ = 0;
      version_ = 0;
      values_ = Segment();
      gets_until_trial_ = kGetsBetweenTrials;
      return FetchAll(out, limit);
    }
    MV_RETURN_IF_NOT_OK(FetchAll(out, limit));
    if (!values_.is_mapped()) {
      // Only pages of rows of other nodes are touched.
      Result<Segment> made = CheckIsFree(kept_bytes).ok()
                                 ? Segment::CreatePrivate(0, rows_ * row_bytes_)
                                 : Status(Code::kMemory, "");
      if (!made.ok()) {
        gets_until_trial_ = kGetsBetweenTrials;
        return Status::Ok();
      }
      values_ = std::move(made.value());
    }
    for (const RowRange& rows : elsewhere_) CopyRows(rows, out, values_.data());
    version_ = version;
    return Status::Ok();
  }
  // If the call fails, the rows are fetched again, because the version stays as it was.
  if (!wanted.empty()) MV_RETURN_IF_NOT_OK(fetch_(wanted, values_.data(), limit));
  version_ = version;
  int64_t next = 0;
  for (const RowRange& rows : elsewhere_) {
    if (rows.first > next) MV_RETURN_IF_NOT_OK(fetch_({RowRange{next, rows.first}}, out, limit));
    CopyRows(rows, values_.data(), out);
    next = rows.end;
  }
  return next < rows_ ? fetch_({RowRange{next, rows_}}, out, limit) : Status::Ok();
}

}  // namespace multiverso
