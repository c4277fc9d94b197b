// Partition: which server owns which rows of a table.
//
// The rows are divided among the servers as evenly as whole rows allow. The servers are ordered by
// node and then by rank, so the rows of a node are consecutive and lie in one segment.
#pragma once

#include <cstdint>
#include <vector>

#include "node/membership.h"
#include "shard/request.h"
#include "shard/row_range.h"

namespace multiverso {

// Returns the rows of which a request for a part has elements, in a table with that many columns.
RowRange RowsOfPart(const Request& part, int64_t columns);

class Partition {
 public:
  // Divides the rows among all servers.
  Partition(const Membership& members, int64_t num_row);
  // Gives all rows to one node. Different numbers choose different nodes among those with servers;
  // 0 chooses the first one.
  static Partition OnOneNode(const Membership& members, int64_t num_row, int64_t number);

  bool is_on_one_node() const { return is_on_one_node_; }
  // Returns the servers in the order of their rows.
  const std::vector<int>& servers() const { return servers_; }
  // Returns the rows of servers()[index], possibly none.
  RowRange RowsOf(size_t index) const;
  // The rows of a node, possibly none, which belong to servers()[first_server] to
  // servers()[end_server - 1].
  struct NodePart {
    int node = 0;
    RowRange rows;
    size_t first_server = 0;
    size_t end_server = 0;
  };
  // Returns the nodes that have servers, in the order of their rows.
  const std::vector<NodePart>& nodes() const { return nodes_; }
  // Returns the index in nodes() of the node that has a row.
  size_t NodeOf(int64_t row) const;
  // Returns the rows that `rank` writes into a checkpoint that the `savers`, in ascending order,
  // write together. All ranks of several nodes save. On one node, another saver writes the rows of
  // a server that was lost.
  RowRange RowsSavedBy(int rank, const std::vector<int>& savers) const;
  // Returns the rows of this rank's node, or none if the node stores no rows.
  RowRange node_rows() const { return node_rows_; }

 private:
  // Divides the rows among `servers`.
  Partition(const Membership& members, int64_t num_row, std::vector<int> servers,
            bool is_on_one_node);
  // Returns the saver that writes the part of servers()[index].
  int SaverOf(size_t index, const std::vector<int>& savers) const;

  std::vector<int> servers_;
  bool is_on_one_node_;
  // The first `num_larger_` servers have `least_rows_` + 1 rows each, the others `least_rows_`.
  int64_t least_rows_;
  int64_t num_larger_;
  std::vector<NodePart> nodes_;
  RowRange node_rows_;
};

}  // namespace multiverso
