#include "table/changed_exchange.h"

#include <algorithm>
#include <cstring>

namespace multiverso {
namespace {

// The tensors are compared with their last values in blocks of so many bytes.
constexpr int64_t kBlockBytes = int64_t{64} << 10;

void Append(RowRange rows, std::vector<RowRange>* ranges) {
  if (rows.count() <= 0) return;
  if (!ranges->empty() && ranges->back().end == rows.first) {
    ranges->back().end = rows.end;
  } else {
    ranges->push_back(rows);
  }
}

bool IsMost(int64_t rows, const TableSpec& spec) { return 2 * rows > spec.num_row; }

// Returns the rows in which the tensors differ from their last values, or the first of these rows
// if they are most of the table.
std::vector<RowRange> ListChangesOfTensors(const TableSpec& spec, const Request& exchange) {
  const int64_t element_bytes = SizeOf(spec.value_type());
  const int64_t step = std::max<int64_t>(1, kBlockBytes / (spec.num_col * element_bytes));
  const auto* const last = static_cast<const char*>(exchange.out);
  std::vector<RowRange> changed;
  int64_t rows_changed = 0;
  for (int64_t row = 0; row < spec.num_row && !IsMost(rows_changed, spec); row += step) {
    const int64_t end = std::min(row + step, spec.num_row);
    const int64_t first = row * spec.num_col;
    bool differs = false;
    exchange.tensors->ForEachPart(
        first, (end - row) * spec.num_col, [&](const void* part, int64_t offset, int64_t elements) {
          differs = differs || std::memcmp(part, last + (first + offset) * element_bytes,
                                           static_cast<size_t>(elements * element_bytes)) != 0;
        });
    if (!differs) continue;
    Append(RowRange{row, end}, &changed);
    rows_changed += end - row;
  }
  return changed;
}

// Returns the rows of `ranges` that are not in `others`. Both are in ascending order.
std::vector<RowRange> Without(const std::vector<RowRange>& ranges,
                              const std::vector<RowRange>& others) {
  std::vector<RowRange> result;
  auto other = others.begin();
  for (RowRange rows : ranges) {
    while (rows.count() > 0) {
      while (other != others.end() && other->end <= rows.first) ++other;
      const bool overlaps = other != others.end() && other->first < rows.end;
      Append(RowRange{rows.first, overlaps ? other->first : rows.end}, &result);
      rows.first = overlaps ? std::min(other->end, rows.end) : rows.end;
    }
  }
  return result;
}

// Copies the last values of rows to the tensors.
void CopyToTensors(const TableSpec& spec, const Request& exchange,
                   const std::vector<RowRange>& ranges) {
  const int64_t element_bytes = SizeOf(spec.value_type());
  const auto* const last = static_cast<const char*>(exchange.out);
  for (const RowRange& rows : ranges) {
    const int64_t first = rows.first * spec.num_col;
    exchange.tensors->ForEachPart(first, rows.count() * spec.num_col,
                                  [&](void* part, int64_t offset, int64_t elements) {
                                    std::memcpy(part, last + (first + offset) * element_bytes,
                                                static_cast<size_t>(elements * element_bytes));
                                  });
  }
}

}  // namespace

bool MayExchangeChanges(const TableSpec& spec) {
  const bool ignores_zeros =
      spec.updater_kind() == UpdaterKind::kAdd || spec.updater_kind() == UpdaterKind::kSgd;
  // Values of 16 bits are rounded at random by every add. Untouched lazy rows have no versions.
  return ignores_zeros && !IsHalf(spec.type()) && !spec.is_lazy();
}

Status ExchangeChanges(
    const TableSpec& spec, const Request& exchange,
    const std::function<Result<int64_t>(int64_t since, std::vector<RowRange>* rows)>& list,
    const std::function<Status(const Request& request, const std::vector<RowRange>& rows)>& run) {
  const std::vector<RowRange> here = ListChangesOfTensors(spec, exchange);
  if (IsMost(CountRows(here), spec)) {
    *exchange.since = 0;
    return run(exchange, {});
  }
  std::vector<RowRange> changed;
  MV_ASSIGN_OR_RETURN(const int64_t version, list(*exchange.since, &changed));
  if (!here.empty()) MV_RETURN_IF_NOT_OK(run(exchange, here));
  // An exchange would mark these rows as changed, so that other workers would get them again.
  const std::vector<RowRange> there = Without(changed, here);
  if (!there.empty()) {
    Request get = Request::Get(exchange.out);
    get.may_round = exchange.may_round;
    MV_RETURN_IF_NOT_OK(run(get, there));
    CopyToTensors(spec, exchange, there);
  }
  *exchange.since = version;
  return Status::Ok();
}

}  // namespace multiverso
