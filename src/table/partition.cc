#include "table/partition.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/checked.h"

namespace multiverso {

RowRange RowsOfPart(const Request& part, int64_t columns) {
  return RowRange{part.first / columns, DivideUp(part.first + part.Span(columns), columns)};
}

namespace {

// Returns the servers by node and then by rank.
std::vector<int> ServersByNode(const Membership& members) {
  std::vector<int> servers;
  for (int rank = 0; rank < members.capacity(); ++rank) {
    if (members.is_server(rank)) servers.push_back(rank);
  }
  std::stable_sort(servers.begin(), servers.end(),
                   [&](int a, int b) { return members.node_of(a) < members.node_of(b); });
  return servers;
}

}  // namespace

Partition::Partition(const Membership& members, int64_t num_row)
    : Partition(members, num_row, ServersByNode(members), /*is_on_one_node=*/false) {}

Partition Partition::OnOneNode(const Membership& members, int64_t num_row, int64_t number) {
  const std::vector<int> all = ServersByNode(members);
  std::vector<int> nodes;
  for (const int rank : all) {
    if (nodes.empty() || nodes.back() != members.node_of(rank)) {
      nodes.push_back(members.node_of(rank));
    }
  }
  const int node = nodes[static_cast<size_t>(number) % nodes.size()];
  std::vector<int> servers;
  std::copy_if(all.begin(), all.end(), std::back_inserter(servers),
               [&](int rank) { return members.node_of(rank) == node; });
  return Partition(members, num_row, std::move(servers), /*is_on_one_node=*/true);
}

Partition::Partition(const Membership& members, int64_t num_row, std::vector<int> servers_in_order,
                     bool is_on_one_node)
    : servers_(std::move(servers_in_order)), is_on_one_node_(is_on_one_node) {
  const auto servers = static_cast<int64_t>(servers_.size());
  least_rows_ = num_row / servers;
  num_larger_ = num_row % servers;
  for (size_t index = 0; index < servers_.size(); ++index) {
    const int node = members.node_of(servers_[index]);
    if (nodes_.empty() || nodes_.back().node != node)
      nodes_.push_back({node, RowsOf(index), index, index});
    nodes_.back().rows.end = RowsOf(index).end;
    nodes_.back().end_server = index + 1;
    if (node == members.node()) node_rows_ = nodes_.back().rows;
  }
}

RowRange Partition::RowsOf(size_t index) const {
  const auto i = static_cast<int64_t>(index);
  const int64_t first = i * least_rows_ + std::min(i, num_larger_);
  return RowRange{first, first + least_rows_ + (i < num_larger_ ? 1 : 0)};
}

int Partition::SaverOf(size_t index, const std::vector<int>& savers) const {
  const auto saves = [&](int rank) {
    return std::binary_search(savers.begin(), savers.end(), rank);
  };
  // The nearest server is taken, so that the rows that each saver writes are consecutive.
  for (size_t end = index + 1; end > 0; --end) {
    if (saves(servers_[end - 1])) return servers_[end - 1];
  }
  const auto next = std::find_if(servers_.begin(), servers_.end(), saves);
  return next == servers_.end() ? savers.front() : *next;
}

RowRange Partition::RowsSavedBy(int rank, const std::vector<int>& savers) const {
  RowRange rows;
  for (size_t index = 0; index < servers_.size(); ++index) {
    if (SaverOf(index, savers) != rank) continue;
    const RowRange part = RowsOf(index);
    rows = rows.count() == 0 ? part : RowRange{rows.first, part.end};
  }
  return rows;
}

size_t Partition::NodeOf(int64_t row) const {
  const auto after = std::upper_bound(
      nodes_.begin(), nodes_.end(), row,
      [](int64_t wanted, const NodePart& part) { return wanted < part.rows.first; });
  return static_cast<size_t>(after - nodes_.begin()) - 1;
}

}  // namespace multiverso
