// TableCreation: the call with which the ranks create one table together.
//
// The call has three or four exchanges. In the first, every rank sends its spec, and all specs must
// be equal. In the second, the first rank of each node sends the locator of the segment that it
// made, or an error. In the third, every rank reports that it has mapped the segment, or an error.
// The fourth takes place if the master has an initial value, after the master has stored it. So an
// error on one rank fails the creation on all ranks, with the same text, and leaves nothing behind.
//
// In a session that continues without lost ranks, the participants of the first exchange create the
// table: the first of them on each node makes the segment, and the first worker is the master. If
// a maker or the master dies meanwhile, the creation fails on all ranks and can be repeated.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "calls/table.h"
#include "consistency/sync_point_check.h"
#include "memory/segment.h"
#include "shard/shard.h"
#include "table/table_file.h"

namespace multiverso {

class TableCreation {
 public:
  // `init_value` is spec.count() elements or null; only the master's is used. A table with a
  // `folder` lies there (TableFile).
  TableCreation(const TableSpec& spec, int64_t id, const void* init_value,
                const TableContext& context, std::string folder = "");

  // Runs the creation; called once. `sync_point` checks the workers' earlier calls.
  Status Run(SyncPointCheck sync_point, const WaitLimit& limit);
  // Attaches instead to the table in that segment, which others have created in an elastic session.
  // Returns MismatchError if it is not the table that Run would create.
  Status Attach(Segment segment);
  // Returns the table; called after Run or Attach has returned ok.
  std::shared_ptr<Table> TakeTable() { return std::move(table_); }

 private:
  Status CheckSpec() const;
  void SendSpec(const SyncPointArrival& arrival);
  Status CompareSpecs();
  bool is_maker() const { return maker_ == context_.members->rank(); }
  // Returns what follows the end of a lost rank in an error: what it had not done.
  std::string Before(const char* task) const;
  // Makes the segment on the first rank of the node, and exchanges the locators of the segments.
  Status MakeSegments(const WaitLimit& limit);
  Status MakeSegmentHere();
  // Maps the segment on the other ranks of the node, and waits until all ranks have done so.
  Status MapSegments(const WaitLimit& limit);
  Status MapSegmentHere();
  // Returns why the segment could not be opened: the end of the rank that made it, or `failure`.
  Status CauseOf(const Status& failure) const;
  // Makes the table after all ranks have mapped the segments.
  void MakeTable();
  // Stores the master's initial value.
  Status Fill(const WaitLimit& limit);
  // Removes what the services of this node keep of a table that was not created.
  void Forget();

  TableSpec spec_;
  int64_t id_;
  const void* init_value_;
  TableContext context_;
  std::string folder_;
  std::unique_ptr<TableFile> file_;  // on the maker, of a table with a folder
  uint64_t last_session_ = 0;        // TableFile::last_session
  bool any_seed_ = false;            // whether the program has given no seed
  Segment segment_;
  Status failure_;           // of CheckSpec on this rank
  int maker_ = -1;           // the rank of this node that makes the segment
  std::vector<int> makers_;  // the makers of all nodes
  int master_ = -1;          // the rank whose initial value is used
  bool master_has_init_value_ = false;
  bool is_served_ = false;  // whether the services of this node keep the table
  std::shared_ptr<TableShard> here_;
  std::shared_ptr<Table> table_;
};

}  // namespace multiverso
