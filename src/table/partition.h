// Partition: which server owns which rows of a table.
//
// In a session in sync mode whose workers are on several nodes, every node that has workers keeps a
// replica of all rows. Else the rows are cut over the servers as evenly as whole rows allow. The
// servers are ordered by node and then by rank, so that the rows of a node are consecutive and lie
// in one segment.
#ifndef MULTIVERSO_TABLE_PARTITION_H_
#define MULTIVERSO_TABLE_PARTITION_H_

#include <cstdint>
#include <vector>

#include "node/membership.h"

namespace multiverso {

// Rows first to end - 1.
struct RowRange {
  int64_t first = 0;
  int64_t end = 0;

  int64_t count() const { return end - first; }
  bool Contains(int64_t row) const { return row >= first && row < end; }
};

class Partition {
 public:
  // `replicated`: each node with workers has all rows, and no server owns any.
  Partition(const Membership& members, int64_t num_row, bool replicated);

  bool is_replicated() const { return replicated_; }
  // The ranks that are servers, in the order of their rows; or those that keep the replicas.
  const std::vector<int>& servers() const { return servers_; }
  // Of the server at that place in servers(); empty if there are more servers than rows.
  RowRange RowsOf(size_t place) const;
  // The place of the server that owns a row of the table.
  size_t OwnerOf(int64_t row) const;
  // What that rank writes into a checkpoint that `savers` save, in order: every row is written by
  // one of them, that has it. Those that keep replicas write a part each. The rows of a server that
  // is not among them are written by a neighbour on its node, or by nobody if there is none.
  RowRange RowsSavedBy(int rank, const std::vector<int>& savers) const;
  // Of this rank's node; empty if it has no servers.
  RowRange node_rows() const { return node_rows_; }

 private:
  // The rows cut evenly: the part at that place in servers().
  RowRange PartOf(size_t place) const;
  // Who writes it; -1 if nobody can.
  int SaverOf(size_t place, const std::vector<int>& savers) const;

  std::vector<int> servers_;
  std::vector<int> nodes_;  // of all ranks
  bool replicated_;
  int64_t num_row_;
  // The first `wide_` parts have `narrow_rows_` + 1 rows each, the others `narrow_rows_`.
  int64_t narrow_rows_;
  int64_t wide_;
  RowRange node_rows_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_PARTITION_H_
