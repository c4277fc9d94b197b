// Table: a rank's handle to one table. It checks a request, lets the consistency mode wait for
// other workers, and runs the request on this node's shard or, by a DistributedCall, across nodes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "calls/add_arranger.h"
#include "calls/in_rounds.h"
#include "consistency/consistency.h"
#include "consistency/round_service.h"
#include "group/rank_context.h"
#include "node/membership.h"
#include "remote/servers.h"
#include "remote/shard_service.h"
#include "table/table_shard.h"
#include "table/table_spec.h"

namespace multiverso {

// The parts of a session that a table uses. The parts outlive the table.
struct TableContext {
  const Membership* members = nullptr;
  RankContext* rank = nullptr;
  ModeOptions mode;
  ShardService* service = nullptr;  // null if the session has one node
  RoundService* rounds = nullptr;   // null if the session has one node

  // Returns what the session uses, for CheckSupported.
  FeatureSet features() const { return members->features() | mode.features(); }
};

// A rectangle of a table, and of an array the elements of rows with one column.
struct TablePart {
  int64_t first_row = 0;
  int64_t num_row = 1;
  int64_t first_col = 0;
  int64_t num_col = 1;
};

// A Table is thread-safe.
class Table {
 public:
  Table(std::shared_ptr<TableShard> here, const TableContext& context);

  const TableSpec& spec() const { return here_->spec(); }
  int64_t id() const { return here_->id(); }
  RankContext* context() const { return context_.rank; }
  const Membership& members() const { return *context_.members; }
  // Returns what the table and its session use, for CheckSupported.
  FeatureSet features() const { return spec().features() | features_of_session(); }
  FeatureSet features_of_session() const { return context_.features(); }
  // Returns this node's part of the table.
  TableShard* here() const { return here_.get(); }
  const std::shared_ptr<TableShard>& shared_here() const { return here_; }
  Shard* shard() const { return here_->shard(); }
  const Partition& partition() const { return here_->partition(); }
  Consistency* consistency() const { return here_->consistency(); }
  // Returns null if the session has one node.
  ShardService* service() const { return context_.service; }

  // Checks a request, whose buffers have `count` elements, before Run.
  Status Check(const Request& request, int64_t count) const;
  // Makes a get, an add or an atomic request one for a part, and checks it. Returns
  // UnsupportedError if the updater or the mode needs more than the part (table_part.cc).
  Status PlacePart(const TablePart& part, Request* request) const;
  // Runs a checked request to its end.
  Status Run(const Request& request, const WaitLimit& limit);
  // Returns whether a call of that kind is part of a round, for which other workers wait, so that a
  // worker's calls need an order. A touch is part of the add that follows it. The calls that read
  // or change keys, and fetch_add and compare_swap, are parts of no round.
  bool NeedsOrder(RequestKind kind) const {
    return has_rounds_ &&
           (IsAdd(kind) || IsTouch(kind) || ReturnsParameters(kind) ||
            (kind == RequestKind::kVersionsOfRows && context_.mode.sums_in_rounds()));
  }
  // Returns what runs checked requests without the mode, so that they never wait for other workers.
  RequestRunner* without_mode() const { return without_mode_; }
  // Returns whether every get, and not only get(sync=True), returns the same on all workers.
  bool EveryGetIsCollective() const { return context_.mode.sums_in_rounds(); }
  // Returns whether calls run on the servers of several nodes. In sync mode they run in the table's
  // mode, which sums over nodes itself.
  bool calls_servers() const { return servers_ != nullptr && in_rounds_ == nullptr; }

  // Lists the rows that may have changed since a call that returned `since`, in ascending order:
  // of other nodes, whole stripes. If `since` is 0, these are all rows, or the stripes of lazy rows
  // that have ever changed.
  // Returns the version to pass to the next call, which lists at least the rows that change after
  // this call. In sync mode it counts and waits as a get. Blocks to its end.
  Result<int64_t> ListChanges(int64_t since, std::vector<RowRange>* rows, const WaitLimit& limit);
  // Lists the changed rows of all nodes after the rounds that have been applied here, and does not
  // count as a get.
  Result<int64_t> ListChangesNow(int64_t since, std::vector<RowRange>* rows,
                                 const WaitLimit& limit);
  // Lists the changed rows among rows of this node, all if `since` is 0, between rounds. Also lists
  // rows whose updater state may have changed, unless the updater notes gets. What changes from now
  // on is known apart, until a call for another save with the same number modulo a few.
  Result<int64_t> ListChangesHere(int64_t since, RowRange here, std::vector<RowRange>* rows,
                                  size_t save, const WaitLimit& limit);
  // Copies the values of ranges of rows to their places in `out`, which is as large as the table,
  // without the mode, and for no worker.
  Status GetRanges(const std::vector<RowRange>& ranges, void* out, const WaitLimit& limit);
  // Returns the most ranges that ListChanges lists.
  int64_t MaxChanges() const;

  // Returns the parameters, as they are stored, if they are all in memory on this node and may be
  // read without a call; otherwise UnsupportedError.
  Result<const void*> Memory() const;

  // Sums the counts of a hash table over all nodes.
  Result<KeyCounts> CountKeys(const WaitLimit& limit);

  double GetHyper(int32_t index) const { return shard()->hyper()->Get(index); }
  // Returns the norm to which the gradient of each call is clipped, or 0.
  double clipnorm() const { return arranger_.clipnorm(); }

  // Returns "rank 1, table 'w', get", for messages.
  std::string Where(const char* call) const;

 private:
  // Prepares a request, and runs it where requests of its kind run.
  Status RunOnRoute(const Request& request, const WaitLimit& limit);
  // Lists what has changed of the rows of each of `nodes`: rows, whole stripes, or all of them.
  enum class Listing { kRows, kStripes, kAll };
  Result<int64_t> ListRows(const std::vector<RowRange>& nodes, int64_t since, Listing listing,
                           std::vector<RowRange>* rows, const WaitLimit& limit);
  // Returns the rows of each node that has rows.
  std::vector<RowRange> RowsOfNodes() const;

  std::shared_ptr<TableShard> here_;
  TableContext context_;
  bool has_rounds_;
  bool may_be_excluded_;
  const std::atomic<int32_t>* exclusion_;  // as PeerStatus::own_exclusion; each call looks there
  // Why this table has no calls of these kinds; null if it has them.
  const Refusal* against_atomics_;
  const Refusal* against_part_of_row_;
  const Refusal* against_part_of_array_;
  AddArranger arranger_;
  // Where requests run, which is chosen when the table is created: here or on the servers of all
  // nodes; in the mode, or without it.
  std::unique_ptr<Servers> servers_;     // null if the session has one node
  std::unique_ptr<InRounds> in_rounds_;  // null unless in sync mode
  RequestRunner* without_mode_;
  RequestRunner* in_mode_;
};

}  // namespace multiverso
