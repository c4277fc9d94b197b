// LastGet: the values that this rank got last from the servers of other nodes, so that the next get
// of the whole table transfers only the stripes that have changed since.
//
// The values take as much memory as the result of a get. A rank that has too little memory, or
// whose gets find most of the table changed, gets the whole table instead.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "memory/segment.h"
#include "table/partition.h"
#include "table/table_spec.h"

namespace multiverso {

// Thread-safe: a get that runs beside another one gets the whole table.
class LastGet {
 public:
  // Lists the rows that have changed (Table::ListChanges).
  using List = std::function<Result<int64_t>(int64_t since, std::vector<RowRange>* rows,
                                             const WaitLimit& limit)>;
  // Copies rows to their places in `out`, which is as large as the table.
  using Fetch =
      std::function<Status(const std::vector<RowRange>& rows, void* out, const WaitLimit& limit)>;

  // `here` are the rows of this node, which are never kept.
  LastGet(const TableSpec& spec, RowRange here, List list, Fetch fetch);

  // Copies the whole table to `out`.
  Status Run(void* out, const WaitLimit& limit);

 private:
  // Small tables are fetched whole, since listing the changes takes a message, too.
  static constexpr int64_t kMinBytes = int64_t{1} << 20;
  // After so many gets that found most of the table changed, gets fetch the whole table for a
  // while.
  static constexpr int kMaxVainGets = 3;
  static constexpr int kGetsBetweenTrials = 64;

  Status RunWith(void* out, const WaitLimit& limit);
  Status FetchAll(void* out, const WaitLimit& limit) const;
  void CopyRows(RowRange rows, const void* from, void* to) const;

  int64_t rows_;
  int64_t row_bytes_;
  std::vector<RowRange> elsewhere_;  // the rows of other nodes
  List list_;
  Fetch fetch_;
  std::mutex mutex_;
  Segment values_;
  int64_t version_ = 0;  // of the values; 0 without values
  int vain_gets_ = 0;
  int gets_until_trial_ = 0;
};

}  // namespace multiverso
