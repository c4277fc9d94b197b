// Table: what a worker holds in its hand. Checks a call, splits it over the shards, and makes it.
//
// The rows of this node's servers lie in one shard, in memory that this process has mapped. If that
// is all rows, a call on the table ends as a call on the shard. If not, it is an operation that
// also asks the servers of other nodes (DistributedCall).
#ifndef MULTIVERSO_TABLE_TABLE_H_
#define MULTIVERSO_TABLE_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/operation.h"
#include "base/status.h"
#include "consistency/consistency.h"
#include "consistency/node_rounds.h"
#include "group/rank_context.h"
#include "memory/segment.h"
#include "node/membership.h"
#include "shard/row_merge.h"
#include "shard/shard.h"
#include "table/chunk_source.h"
#include "table/partition.h"
#include "table/request.h"
#include "table/table_spec.h"

namespace multiverso {

class RoundService;
class ShardService;

// What a table needs of its session; outlives the table.
struct TableContext {
  const Membership* members = nullptr;
  RankContext* group = nullptr;
  ModeOptions mode;
  ShardService* service = nullptr;  // if the session spans nodes
  RoundService* rounds = nullptr;   // likewise
};

// What a table's segment holds on this node: the shard, and what the mode needs beside it.
struct TableBytes {
  int64_t shard = 0;
  int64_t consistency = 0;  // sparse: mostly address space
};

// Thread-safe. Calls that meet a long-held lock return pending and continue from `progress`.
class Table {
 public:
  // Over a segment of the size that BytesOf says.
  static Result<std::unique_ptr<Table>> Attach(const TableSpec& spec, int64_t id, Segment segment,
                                               TableContext context);
  static Result<TableBytes> BytesOf(const TableSpec& spec, const TableContext& context);

  const TableSpec& spec() const { return spec_; }
  int64_t id() const { return id_; }
  Segment* segment() { return &segment_; }
  RankContext* group() const { return context_.group; }

  // The arguments of a call on the whole table or on rows of it; ok if it can be made.
  Status CheckWhole(const char* call, const void* data, int64_t count) const;
  Status CheckRows(const char* call, const int64_t* row_ids, int64_t num_ids, const void* data,
                   int64_t count) const;

  // Whether calls are made by Start; if not, by the functions after it. In sync mode each node has
  // a replica, and they are not.
  bool spans_nodes() const { return is_on_other_nodes() && !partition_.is_replicated(); }
  std::unique_ptr<Operation> Start(const TableRequest& request, Instant deadline);
  // The same without waiting for other workers, whatever the mode.
  std::unique_ptr<Operation> StartAtServers(const TableRequest& request, Instant deadline);
  // Whether ranks of other nodes have the table too.
  bool is_on_other_nodes() const { return context_.service != nullptr; }

  // Checked by the above.
  Status Get(void* out, Progress* progress, const WaitLimit& limit);
  Status Add(const void* delta, Progress* progress, const WaitLimit& limit);
  Status AddGet(const void* delta, void* out, Progress* progress, const WaitLimit& limit);
  // Shard::Exchange, where the parameters are within reach and the mode allows it; elsewhere the
  // same is made of AddGet.
  bool ExchangesInPlace() const;
  Status Exchange(const TensorList& tensors, void* last, Progress* progress,
                  const WaitLimit& limit);
  Status GetRows(const int64_t* row_ids, int64_t num_ids, void* out, Progress* progress,
                 const WaitLimit& limit);
  Status AddRows(const int64_t* row_ids, int64_t num_ids, const void* delta, Progress* progress,
                 const WaitLimit& limit);

  // What is to be added instead of a delta that names rows twice, where the updater wants each
  // once; null if the delta is right as it is. ValueError if the updater refuses it.
  Result<std::shared_ptr<const MergedRows>> MergeDuplicates(const RowDelta& delta) const;

  // This worker joins no further rounds of sync mode or bounded staleness.
  void Finish();
  // This worker is about to join a collective call of all ranks. See Consistency for the rest.
  void ReachSyncPoint(const SyncPoint& fence);
  CallDigest CallsBefore(const SyncPoint& fence) const;
  Status CompareAt(const SyncPoint& fence);
  void Depart();
  // Whether calls are parts of rounds, for which other workers wait.
  bool HasRounds() const { return consistency_ != nullptr; }
  // In sync mode, every get is what get(sync=True) is in the other modes.
  bool EveryGetIsCollective() const { return context_.mode.mode == Mode::kSync; }

  // Past the updater, by the master, before the table is handed out.
  Status Store(const void* values, Progress* progress, const WaitLimit& limit);

  const Updater& updater() const { return shard_->updater(); }
  const Hyper* hyper() const { return shard_->hyper(); }
  // On this node. Others are asked, by the request that this makes, to follow when they have
  // applied as many rounds as this one.
  Status SetHyper(int32_t index, double value);
  TableRequest HyperRequest(int32_t index, double value) const;
  bool HasApplied(uint64_t rounds) const;
  double GetHyper(int32_t index) const;

  // ---- In a session that spans nodes, about this node's rows.
  const Partition& partition() const { return partition_; }
  ShardService* service() const { return context_.service; }
  Holders* holders() const { return shard_->holders(); }
  // What the leader of a node does for the table's rounds; null elsewhere.
  NodeRounds* node_rounds() const { return node_rounds_.get(); }
  // Whether a request from another node can be met; not yet which rows it names.
  Status CheckRequest(const RequestHeader& header) const;
  Status CheckRowsHere(const std::vector<int64_t>& row_ids) const;
  // The rows that a call on the whole table asks that server for, by its place among the servers.
  // Its own, unless several servers of a node have parts of what the updater counts as one.
  RowRange RowsAskedOf(size_t place) const;
  // Makes what counts from the table's first row count from the shard's.
  void CountFromShard(Chunk* chunk) const;
  // Does what the chunk asks for on the shard.
  Status Operate(Chunk* chunk, Progress* progress, const WaitLimit& limit);

  // ---- For checkpoints
  int64_t state_slots() const { return shard_->state_slots(); }
  // Shard::CopyOut and CopyIn, counted from the table's first element; of this node's rows.
  Status CopyOut(int64_t area, int64_t first, int64_t count, void* out, Progress* progress,
                 const WaitLimit& limit, ReadAgain when = ReadAgain::kSoon);
  Status CopyIn(int64_t area, int64_t first, int64_t count, const void* values, Progress* progress,
                const WaitLimit& limit);
  Status CopyStepsOut(RowRange rows, int64_t rows_per_step, uint32_t* steps, Progress* progress,
                      const WaitLimit& limit);
  Status CopyStepsIn(RowRange rows, int64_t rows_per_step, const uint32_t* steps,
                     Progress* progress, const WaitLimit& limit);
  // As in Consistency. No clocks without rounds, and on ranks that are no workers.
  Status Settle(const WaitLimit& limit);
  std::vector<uint64_t> Clocks() const;
  void StartFrom(uint64_t rounds);

  // "rank 1, table 'w', get", for messages.
  std::string Where(const char* call) const;

 private:
  Table(const TableSpec& spec, int64_t id, Segment segment, TableContext context);

  TableSpec spec_;
  int64_t id_;
  Segment segment_;
  TableContext context_;
  Partition partition_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<Consistency> consistency_;  // null in async mode
  std::unique_ptr<NodeRounds> node_rounds_;
};

}  // namespace multiverso

#endif  // MULTIVERSO_TABLE_TABLE_H_
