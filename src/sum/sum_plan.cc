#include "sum/sum_plan.h"

namespace multiverso {

SumPlan SumPlan::Of(const Membership& members) {
  SumPlan plan;
  plan.leader_of.assign(static_cast<size_t>(members.num_nodes()), -1);
  for (int rank = 0; rank < members.size(); ++rank) {
    const int node = members.node_of(rank);
    if (members.is_worker(rank)) plan.node_of.push_back(node);
    // As Membership::leader_of has it, but for all nodes at once.
    int* const leader = &plan.leader_of[static_cast<size_t>(node)];
    const bool is_first_worker =
        *leader >= 0 && members.is_worker(rank) && !members.is_worker(*leader);
    if (*leader < 0 || is_first_worker) *leader = rank;
  }
  return plan;
}

std::vector<std::vector<int>> SumPlan::WorkersByNode() const {
  std::vector<std::vector<int>> workers(leader_of.size());
  for (size_t worker = 0; worker < node_of.size(); ++worker) {
    workers[static_cast<size_t>(node_of[worker])].push_back(static_cast<int>(worker));
  }
  return workers;
}

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
