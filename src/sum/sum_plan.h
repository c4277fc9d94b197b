// SumPlan: which node adds which part of a sum over nodes, and to which node it sends the result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "node/membership.h"

namespace multiverso {

// The same on all nodes.
struct SumPlan {
  static constexpr int kNoNode = -1;

  struct Part {
    int64_t first = 0;  // the part covers segments first to end - 1
    int64_t end = 0;
    int root = 0;  // the node to which the part belongs
  };

  std::vector<Part> parts;
  bool is_tree = false;        // whether the trees are binomial, from the first worker's node
  std::vector<int> node_of;    // the node of each worker
  std::vector<int> leader_of;  // the rank that sends and receives for each node

  // Returns the workers' nodes and the leaders of a session, without parts.
  static SumPlan Of(const Membership& members);

  // Returns whether a sum of that many bytes takes less time as one part than as a part per node,
  // because it depends on the number of messages.
  static constexpr bool PrefersOnePart(int nodes, int64_t bytes) {
    return bytes <= std::max(int64_t{16} << 10, int64_t{512} * nodes);
  }
  // Returns whether a sum of one part takes less time along a binomial tree, in which it waits for
  // O(log n) messages, than in a star, whose root handles n messages.
  static constexpr bool PrefersTree(int nodes) { return nodes >= 32; }
  // Returns the workers of each node, in ascending order.
  std::vector<std::vector<int>> WorkersByNode() const;
  // Returns the nodes that have workers, in the order of their first workers.
  std::vector<int> WorkerNodes() const;
  // Returns the node to which that node sends its sums of a part, or kNoNode for the root.
  // `worker_nodes` are WorkerNodes().
  int ParentOf(const Part& part, int node, const std::vector<int>& worker_nodes) const;
};

}  // namespace multiverso
