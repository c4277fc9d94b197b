#include "table/partition.h"

#include <algorithm>

namespace multiverso {

Partition::Partition(const Membership& members, int64_t num_row, bool replicated)
    : replicated_(replicated), num_row_(num_row), narrow_rows_(0), wide_(0) {
  for (int rank = 0; rank < members.size(); ++rank) nodes_.push_back(members.node_of(rank));
  if (replicated) {
    servers_ = members.worker_leaders();
    if (members.num_workers_here() > 0) node_rows_ = RowRange{0, num_row};
  } else {
    for (int rank = 0; rank < members.size(); ++rank) {
      if (members.is_server(rank)) servers_.push_back(rank);
    }
    std::stable_sort(servers_.begin(), servers_.end(),
                     [&](int a, int b) { return members.node_of(a) < members.node_of(b); });
  }
  const auto servers = static_cast<int64_t>(servers_.size());
  narrow_rows_ = num_row / servers;
  wide_ = num_row % servers;
  if (replicated) return;
  bool any = false;
  for (size_t place = 0; place < servers_.size(); ++place) {
    if (members.node_of(servers_[place]) != members.node()) continue;
    const RowRange rows = RowsOf(place);
    if (!any) node_rows_.first = rows.first;
    node_rows_.end = rows.end;
    any = true;
  }
}

RowRange Partition::RowsOf(size_t place) const {
  return replicated_ ? RowRange{0, num_row_} : PartOf(place);
}

RowRange Partition::PartOf(size_t place) const {
  const auto number = static_cast<int64_t>(place);
  const int64_t first = number * narrow_rows_ + std::min(number, wide_);
  return RowRange{first, first + narrow_rows_ + (number < wide_ ? 1 : 0)};
}

int Partition::SaverOf(size_t place, const std::vector<int>& savers) const {
  const auto saves = [&](int rank) {
    return std::binary_search(savers.begin(), savers.end(), rank);
  };
  const auto node_of = [&](int rank) { return nodes_[static_cast<size_t>(rank)]; };
  const int node = node_of(servers_[place]);
  // Servers of a node are adjacent, so the rows that each saver writes are consecutive.
  for (size_t before = place + 1; before > 0 && node_of(servers_[before - 1]) == node; --before) {
    if (saves(servers_[before - 1])) return servers_[before - 1];
  }
  for (size_t after = place; after < servers_.size() && node_of(servers_[after]) == node; ++after) {
    if (saves(servers_[after])) return servers_[after];
  }
  const auto other =
      std::find_if(savers.begin(), savers.end(), [&](int rank) { return node_of(rank) == node; });
  return other == savers.end() ? -1 : *other;
}

RowRange Partition::RowsSavedBy(int rank, const std::vector<int>& savers) const {
  RowRange rows;
  for (size_t place = 0; place < servers_.size(); ++place) {
    if (SaverOf(place, savers) != rank) continue;
    const RowRange part = PartOf(place);
    rows = rows.count() == 0 ? part : RowRange{rows.first, part.end};
  }
  return rows;
}

size_t Partition::OwnerOf(int64_t row) const {
  const int64_t in_wide = wide_ * (narrow_rows_ + 1);
  if (row < in_wide) return static_cast<size_t>(row / (narrow_rows_ + 1));
  return static_cast<size_t>(wide_ + (row - in_wide) / narrow_rows_);
}

}  // namespace multiverso
