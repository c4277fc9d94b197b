// Partition: which server owns which rows of a table.
//
// In sync mode over several nodes, every node with workers keeps a replica of all rows. Otherwise
// the rows are divided among the servers as evenly as whole rows allow. The servers are ordered by
// node and then by rank, so the rows of a node are consecutive and lie in one segment.
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
  // If `replicated`, each node with workers has all rows, and no server owns rows.
  Partition(const Membership& members, int64_t num_row, bool replicated);

  bool is_replicated() const { return replicated_; }
  // Returns the servers in the order of their rows, or the ranks that keep the replicas.
  const std::vector<int>& servers() const { return servers_; }
  // Returns the rows of the server at `place` in servers(), or none if rows are fewer than servers.
  RowRange RowsOf(size_t place) const;
  // Returns the place of the server that owns a row of the table.
  size_t OwnerOf(int64_t row) const;
  // Returns the rows that `rank` writes into a checkpoint of `savers`, which are in ascending
  // order. Exactly one of the savers that have a row writes the row. Ranks that keep replicas write
  // one part each. The rows of a server that is not a saver are written by a saver on the server's
  // node, or by no rank if the node has no saver.
  RowRange RowsSavedBy(int rank, const std::vector<int>& savers) const;
  // Returns the rows of this rank's node, or none if the node has no servers.
  RowRange node_rows() const { return node_rows_; }

 private:
  // Returns the part for `place` in servers() when the rows are cut evenly.
  RowRange PartOf(size_t place) const;
  // Returns the saver of the part for `place`, or -1 if no rank can save the part.
  int SaverOf(size_t place, const std::vector<int>& savers) const;

  std::vector<int> servers_;
  std::vector<int> nodes_;  // the node of each rank
  bool replicated_;
  int64_t num_row_;
  // The first `wide_` parts have `narrow_rows_` + 1 rows each, the others `narrow_rows_`.
  int64_t narrow_rows_;
  int64_t wide_;
  RowRange node_rows_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_PARTITION_H_
