#include "sum/sum_plan.h"

#include <algorithm>

namespace multiverso {

std::vector<int> SumPlan::WorkerNodes() const {
  std::vector<bool> is_known(leader_of.size(), false);
  std::vector<int> nodes;
  for (const int node : node_of) {
    if (is_known[static_cast<size_t>(node)]) continue;
    is_known[static_cast<size_t>(node)] = true;
    nodes.push_back(node);
  }
  return nodes;
}

int SumPlan::ParentOf(const Part& part, int node, const std::vector<int>& worker_nodes) const {
  if (node == part.root) return kNoNode;
  if (!is_tree) return part.root;
  // A node's children are 1, 2, 4, ... places after it, as in the canonical sum.
  const auto at = static_cast<size_t>(std::find(worker_nodes.begin(), worker_nodes.end(), node) -
                                      worker_nodes.begin());
  return worker_nodes[at & (at - 1)];
}

}  // namespace multiverso
